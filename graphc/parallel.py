"""`gc.parallel`: one model on several devices, or several steps at once.

The module is `graphc.learn.parallel`; here `import graphc.parallel` finds it.
"""

import sys

from graphc.learn import parallel
from graphc.learn.parallel import *  # noqa: F403

sys.modules[__name__] = parallel
