"""What cannot be compared is refused by name; the comparison itself runs as its doctest."""

from __future__ import annotations

import pytest

from bayes_ecc import ECC, BradleyTerry, InputError, compare_em_and_posterior, simulate
from bayes_ecc.splits import draw_split


@pytest.fixture(scope="module")
def split():
    return draw_split(simulate(n_queries=60, n_models=5, rng=0).bundle())


def test_what_is_no_split_is_refused(split):
    for given, others in ((split.train, ()), (ECC(2), (ECC(3),)), (None, ())):
        with pytest.raises(InputError, match=f"split is a {type(given).__name__}; give what draw"):
            compare_em_and_posterior(given, *others)


@pytest.mark.parametrize("given", [3, ECC, BradleyTerry()])
def test_what_is_no_mixture_is_refused(split, given):
    with pytest.raises(InputError, match=r"em is a .*; give an estimator such as ECC"):
        compare_em_and_posterior(split, given)
    with pytest.raises(InputError, match=r"posterior is a .*; give an estimator such as Baye"):
        compare_em_and_posterior(split, ECC(2), given)
