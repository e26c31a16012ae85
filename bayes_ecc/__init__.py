"""Which language model is good at what, and how sure that is.

What the library offers is listed in `__init__.pyi`, and imported when it is first used: PyMC and
matplotlib take seconds to import, and much needs neither.
"""

from importlib.metadata import version

import lazy_loader

__version__ = version("bayes_ecc")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
