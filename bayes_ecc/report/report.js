// Sorting and searching for tables and cards that read well without it. Nothing is fetched, and
// nothing of the data is ever turned into markup: rows are moved and hidden, labels set as text.
"use strict";
(() => {
  const FEW = 12; // rows that need no searching

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  const folded = (text) => text.normalize("NFKC").toLowerCase();

  const searcher = (items, what, box, text) => {
    const status = make("span", { className: "quiet" });
    status.setAttribute("role", "status");
    const input = make("input", { type: "search", autocomplete: "off", spellcheck: false });
    const search = () => {
      const words = folded(input.value).split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const item of items) {
        const content = folded(text(item));
        item.hidden = !words.every((word) => content.includes(word));
        shown += item.hidden ? 0 : 1;
      }
      status.textContent = words.length ? `${shown} of ${items.length}` : "";
    };
    input.addEventListener("input", search);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && input.value) {
        input.value = "";
        search();
        event.preventDefault();
      }
    });
    const tools = make("div", { className: "tools" }, make("label", {}, `Search ${what}`, input), status);
    box.before(tools);
    return tools;
  };

  // ------------------------------------------------------------------ tables

  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.trim();
  };

  const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? order.compare(a, b) : x - y;
  };

  const sort = (table, column, direction) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, key: key(row, column) }));
    rows.sort((a, b) => {
      if ((a.key === "") !== (b.key === "")) return a.key === "" ? 1 : -1; // what is missing goes last
      return direction * compare(a.key, b.key) || a.place - b.place;
    });
    body.append(...rows.map(({ row }) => row));
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  };

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = make("button", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const falling = head.classList.contains("number"); // of numbers one looks for the largest
        const first = falling ? -1 : 1;
        const again = now === (falling ? "descending" : "ascending");
        sort(table, column, again ? -first : first);
      });
    });
    const box = table.closest(".scroll");
    if (rows.length > FEW) searcher(rows, box.getAttribute("aria-label"), box, (row) => row.textContent);
  }

  // ------------------------------------------------------------------ cards

  for (const box of document.querySelectorAll("[data-cards]")) {
    const cards = [...box.children];
    const toggle = (open) => () => cards.forEach((card) => { card.open = open; });
    const tools = searcher(cards, box.dataset.cards, box, (card) => card.textContent);
    for (const [label, open] of [["Open all", true], ["Close all", false]]) {
      const button = make("button", { type: "button", textContent: label });
      button.addEventListener("click", toggle(open));
      tools.append(button);
    }
  }

  // A link into a closed or hidden card opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const card = target && target.closest("details");
    if (!card) return;
    card.hidden = false;
    card.open = true;
    card.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  reveal();

  // Paper has no clicks: open what is closed, and close it again.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open], .more)")];
    closed.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
})();
