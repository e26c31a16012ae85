"""The versions that results may depend on."""

from __future__ import annotations

import platform
from importlib import metadata


def installed_versions(*names: str) -> dict[str, str]:
    """Give the version of Python and of those libraries that are installed.

    Examples
    --------
    >>> from bayes_ecc.versions import installed_versions
    >>> list(installed_versions("numpy", "not-installed"))
    ['python', 'numpy']
    """
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
