"""Downloads, with the hub's own calls replaced by files on disk."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest

from bayes_ecc import BayesEccError, InputError
from bayes_ecc.datasets import (
    fetch_alpaca_eval,
    fetch_lmarena,
    fetch_mt_bench,
    fetch_open_llm_leaderboard,
    fetch_sprout,
    load_alpaca_eval,
    load_lmarena,
    load_mt_bench,
    load_open_llm_leaderboard,
    load_sprout,
)


class FakeHub:
    """Repositories as folders; a snapshot copies the files asked for into the cache."""

    def __init__(self, root):
        self.root, self.calls = root, []

    def folder(self, repo_id, repo_type):
        place = self.root / repo_type / repo_id
        if not place.is_dir():
            raise OSError(f"404 Client Error: no {repo_type} {repo_id}")
        return place

    def snapshot_download(self, *, repo_id, repo_type, revision, allow_patterns, cache_dir):
        self.calls.append((repo_id, repo_type, revision, cache_dir))
        place = self.folder(repo_id, repo_type)
        target = self.root / "cache" / repo_id.replace("/", "--")
        for path in filter(lambda each: each.is_file(), place.rglob("*")):
            name = path.relative_to(place).as_posix()
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(path.read_bytes())
        target.mkdir(parents=True, exist_ok=True)
        return str(target)

    def list_repo_files(self, *, repo_id, repo_type, revision):
        self.calls.append((repo_id, repo_type, revision))
        place = self.folder(repo_id, repo_type)
        return [each.relative_to(place).as_posix() for each in place.rglob("*") if each.is_file()]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    made = FakeHub(tmp_path / "hub")
    calls = {name: getattr(made, name) for name in ("snapshot_download", "list_repo_files")}
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(**calls))
    return made


def test_fetch_sprout(hub, samples):
    samples.write("sprout", hub.root / "dataset" / "CARROT-LLM-Routing" / "SPROUT")
    loaded = load_sprout(fetch_sprout(cache="here", revision="main"))
    assert loaded.counts.used == 3
    assert hub.calls == [("CARROT-LLM-Routing/SPROUT", "dataset", "main", "here")]
    with pytest.raises(BayesEccError, match=r"SPROUT-o3mini could not be downloaded \(404"):
        fetch_sprout(variant="o3mini")
    with pytest.raises(InputError, match="variant='x'"):
        fetch_sprout(variant="x")


def test_fetch_lmarena(hub, samples):
    place = hub.root / "dataset" / "lmarena-ai"
    samples.write("lmarena", place / "arena-human-preference-140k")
    samples.write_rows(place / "arena-human-preference-55k" / "train.csv", samples.votes_55k())
    samples.write_rows(place / "arena-human-preference-55k" / "test.csv", [{"id": 1}])
    assert load_lmarena(fetch_lmarena()).counts.used == 5
    assert load_lmarena(fetch_lmarena(release="55k")).counts.used == 2
    with pytest.raises(InputError, match="allowed are 55k, 100k, 140k"):
        fetch_lmarena(release="1m")


def test_fetch_mt_bench(hub, samples):
    people = hub.root / "dataset" / "lmsys" / "mt_bench_human_judgments" / "data"
    rows = samples.human_rows()
    samples.write_rows(people / "human-00000-of-00001-25f4910818759289.parquet", rows)
    samples.write_rows(people / "gpt4_pair-00000-of-00001-c0b431264a82ddc0.parquet", rows[:3])
    judge = hub.root / "space" / "lmsys" / "mt-bench" / "data" / "mt_bench" / "model_judgment"
    samples.write_json(judge / "gpt-4_pair.jsonl", samples.pair_records(), lines=True)
    assert load_mt_bench(fetch_mt_bench()).counts.read == 4
    assert load_mt_bench(fetch_mt_bench(part="gpt4_pair")).counts.read == 3  # and not the others
    assert load_mt_bench(fetch_mt_bench(part="gpt4_both_orders")).counts.read == 6


def test_fetch_alpaca_eval(hub, samples):
    place = hub.root / "dataset" / "tatsu-lab" / "alpaca_eval"
    records = [samples.annotation(0, 1), samples.annotation(1, 2)]
    samples.write_json(place / "alpaca_eval_annotations_alpaca_eval_gpt4.json", records)
    assert load_alpaca_eval(fetch_alpaca_eval()).counts.used == 2
    with pytest.raises(BayesEccError, match="has no file alpaca_eval_annotations_claude"):
        fetch_alpaca_eval(part="claude")


def test_fetch_open_llm_leaderboard_takes_the_newest_run_of_each_task(hub, samples, tmp_path):
    published = samples.write("open_llm_leaderboard", tmp_path / "published").source
    place = hub.root / "dataset" / "open-llm-leaderboard"
    place.parent.mkdir(parents=True)
    published.rename(place)
    folders = fetch_open_llm_leaderboard(["OpenAI/gpt", "meta/llama"], tasks=["mmlu_pro", "bbh"])
    fetched = {path.name for folder in folders for path in folder.rglob("*.json*")}
    assert fetched == {
        "samples_leaderboard_mmlu_pro_2024-06-16T16-57-41.377142.json",
        "samples_leaderboard_bbh_navigate_2024-06-16T16-57-41.377142.json",
    }
    assert load_open_llm_leaderboard(folders).bundle.models.tolist() == ["OpenAI/gpt", "meta/llama"]
    with pytest.raises(InputError, match="has none of these tasks; it has bbh_navigate, ifeval"):
        fetch_open_llm_leaderboard(["OpenAI/gpt"], tasks=["gpqa"])
    with pytest.raises(BayesEccError, match="hf auth login"):
        fetch_open_llm_leaderboard(["nobody/nothing"])
    with pytest.raises(InputError, match="give a list"):
        fetch_open_llm_leaderboard("OpenAI/gpt")


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BayesEccError, match=r"pip install 'bayes-ecc\[hub\]'"):
        fetch_sprout()
