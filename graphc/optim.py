"""`gc.optim`: optimisers as plain functions over pytrees.

The module is `graphc.learn.optim`; here `import graphc.optim` finds it.
"""

import sys

from graphc.learn import optim
from graphc.learn.optim import *  # noqa: F403

sys.modules[__name__] = optim
