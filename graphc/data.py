"""`gc.data`: loaders for arrays, folders of images and text.

The module is `graphc.learn.data`; here `import graphc.data` finds it.
"""

import sys

from graphc.learn import data
from graphc.learn.data import *  # noqa: F403

sys.modules[__name__] = data
