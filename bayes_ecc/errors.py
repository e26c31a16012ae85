"""The errors and warnings of the library: every one says what to do."""


class BayesEccError(Exception):
    """Base class of all errors raised on purpose by this library.

    Examples
    --------
    >>> from bayes_ecc import BayesEccError, Comparisons
    >>> try:
    ...     Comparisons.from_arrays([0], [0], [0], [1.0], queries=["q"], models=["a", "b"])
    ... except BayesEccError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(BayesEccError, ValueError):
    """Input that no estimator could use; the message names it and says how to mend it.

    Examples
    --------
    >>> from bayes_ecc import InputError
    >>> issubclass(InputError, ValueError)
    True
    """


class NotFittedError(BayesEccError, ValueError, AttributeError):
    """An estimator was asked to predict before it was fitted.

    Examples
    --------
    >>> from bayes_ecc import ECC, NotFittedError
    >>> try:
    ...     ECC(n_clusters=2).predict_responsibilities(embeddings=[[1.0, 0.0]])
    ... except NotFittedError as error:
    ...     print(error)
    This ECC is not fitted yet: call fit(comparisons, embeddings) first.
    """


class DataWarning(UserWarning):
    """The data can be used, but not for everything; the message says for what.

    Examples
    --------
    >>> from bayes_ecc import DataWarning
    >>> issubclass(DataWarning, UserWarning)
    True
    """


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged; the message names remedies.

    Examples
    --------
    >>> from bayes_ecc import ConvergenceWarning
    >>> issubclass(ConvergenceWarning, UserWarning)
    True
    """
