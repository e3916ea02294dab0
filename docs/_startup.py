"""What a notebook has before its first cell: PYTHONSTARTUP of the kernels that conf.py starts."""

import os
import warnings

from IPython import get_ipython

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm misses its widgets

# Commands that a cell starts write plain text; the kernel asks for colours.
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("CLICOLOR", None)
os.environ.update(TERM="dumb", NO_COLOR="1", COLUMNS="84")

# Before the first picture: matplotlib chooses its backend within the style of that picture, and
# with the style it would forget that pictures are shown.
get_ipython().run_line_magic("matplotlib", "inline")
