"""What a notebook has before its first cell: PYTHONSTARTUP of the kernels that conf.py starts."""

import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm misses its widgets
