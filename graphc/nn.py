"""`gc.nn`: layers, initialisers, losses and metrics over pytrees of parameters.

The module is `graphc.learn.nn`; here `import graphc.nn` finds it.
"""

import sys

from graphc.learn import nn
from graphc.learn.nn import *  # noqa: F403

sys.modules[__name__] = nn
