"""How to run it again: commands that ask for the same; files; the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayes_ecc import (
    ECC,
    BayesianECC,
    InputError,
    Simulation,
    load_posterior,
    save_bundle,
    save_posterior,
)
from bayes_ecc.cli import main, make_parser
from bayes_ecc.report import render_report, write_report
from bayes_ecc.report.held_out import evaluate_command
from bayes_ecc.report.rerun import fit_command

type PageReader = Callable[[str], Any]


def test_command_of_the_evaluation_asks_for_the_same(evaluation: dict[str, Any]) -> None:
    command = evaluate_command(evaluation, "data/some folder")
    args = make_parser().parse_args(split_command(command)[1:])
    protocol = evaluation["protocol"]
    assert str(args.bundle) == "data/some folder"
    assert args.methods == list(evaluation["methods"])
    assert (args.seed, args.seeds, str(args.json)) == (0, 2, "result.json")
    assert args.clusters == protocol["n_clusters"]
    for name in ("embedding_weight", "temperature", "ridge", "concentration", "probe_power"):
        assert getattr(args, name) == protocol[name]
    assert (args.chains, args.draws) == (protocol["chains"], protocol["draws"])


def split_command(command: str) -> list[str]:
    import shlex

    return shlex.split(command)


def test_command_of_the_fit_has_its_settings(em: ECC, bayes: BayesianECC) -> None:
    command, exact = fit_command(em.posterior_, "a fit.nc", "folder")
    args = make_parser().parse_args(split_command(command)[1:])
    assert not exact
    assert (args.method, args.clusters, args.seed) == ("ecc", 3, 7)
    assert (args.embedding_weight, args.temperature, args.ridge) == (1.0, 0.1, 0.1)
    command, _ = fit_command(bayes.posterior_, "fit.nc", None)
    args = make_parser().parse_args(split_command(command)[1:])
    assert (args.method, args.concentration, args.probe_power) == ("bayes", 6.0, 3.0)
    assert (args.chains, args.draws) == (2, 60)


def test_command_that_was_kept_is_shown_as_it_was(em: ECC, read_page: PageReader) -> None:
    posterior = em.posterior_.copy()
    posterior.attrs["command"] = "bayes-ecc fit 'my data' --method ecc --out x.nc --seed 5"
    assert fit_command(posterior, "x.nc", None) == (posterior.attrs["command"], True)
    text = read_page(render_report(posterior, figures=False)).text
    assert posterior.attrs["command"] in text


def test_provenance_is_told(em: ECC, tmp_path: Path, read_page: PageReader) -> None:
    path = save_posterior(em.posterior_, tmp_path / "fit.nc")
    attrs = load_posterior(path).attrs
    text = read_page(render_report(path, figures=False)).text
    assert attrs["data_fingerprint"] in text
    for name, version in json.loads(attrs["versions"]).items():
        assert f"{name} {version}" in text
    assert "@software{bayes_ecc" in text
    # of a fit that was not saved, the fingerprint is the same
    assert attrs["data_fingerprint"] in read_page(render_report(em, figures=False)).text


def test_damaged_attributes_are_passed_over(em: ECC, read_page: PageReader) -> None:
    posterior = em.posterior_.copy()
    posterior.attrs.update(settings="{", versions="[]")
    assert "Fitted with" in read_page(render_report(posterior, figures=False)).text


def test_file_is_written_whole_or_not_at_all(em: ECC, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert write_report(em, path, figures=False) == path
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_bad_arguments_are_refused(em: ECC, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        write_report(em, tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        write_report(em, tmp_path / "no" / "report.html")
    with pytest.raises(InputError, match="path=3"):
        write_report(em, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fit=int"):
        render_report(3)
    with pytest.raises(InputError, match="typical"):
        render_report(em, typical=-1)
    with pytest.raises(InputError, match="does not exist"):
        render_report(tmp_path / "no.nc")
    bare = em.posterior_.copy()
    del bare["observed_data"]
    with pytest.raises(InputError, match="no training data"):
        render_report(bare)


def test_command_line(
    em: ECC,
    data: Simulation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    read_page: PageReader,
) -> None:
    fit = save_posterior(em.posterior_, tmp_path / "fit.nc")
    bundle = save_bundle(data.bundle(), tmp_path / "data")
    out = tmp_path / "report.html"
    command = ["report", str(fit), "--out", str(out), "--bundle", str(bundle), "--no-figures"]
    evaluated = [*command, "--evaluate", "--methods", "global,labels:capability", "--seeds", "2"]
    assert main(evaluated) == 0
    assert "any browser opens it" in " ".join(capsys.readouterr().out.split())
    page = read_page(out.read_text(encoding="utf-8"))
    assert [row[0][:6] for row in page.tables["methods"][1:]] == ["global", "labels"]
    assert "--seed 0 --seeds 2" in page.text
    assert "Report on data" in page.text

    assert main(["report", str(fit), "--out", str(out), "--evaluate"]) == 2
    assert "--evaluate needs --bundle" in capsys.readouterr().err
    assert main(["report", str(fit), "--out", str(tmp_path)]) == 2
    assert main([*command, "--seeds", "2"]) == 0
    assert "--seeds: without effect" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "no.nc"), "--out", str(out)]) == 2
    assert main([*command, "--evaluation", str(fit)]) == 2


def test_real_data(shared_data: Path, shared_protocol: Path, read_page: PageReader) -> None:
    from bayes_ecc import load_bundle
    from bayes_ecc.splits import frozen_split

    bundle = load_bundle(shared_data / "routerdc")
    split = frozen_split(bundle, shared_protocol / "routerdc" / "seed_0.parquet")
    fit = ECC(12, embedding_weight=1.0, ridge=0.1, rng=0).fit(split.train, split.train_embeddings)
    page = read_page(render_report(fit, bundles=bundle, figures=False))
    assert "comparisons of the fit agree with it" in page.text
    assert len(page.tables["clusters"]) == 13
    known = bundle.queries["text"].str.split().str.join(" ")
    shown = [text for text in known if text and len(text) < 100 and text in page.text]
    assert len(shown) > 10
