"""Python imports this at its start if the folder is on its path: torch computes without oneDNN.

oneDNN chooses kernels by kind and caches of the processor, and no variable switches it off. The
variable keeps whatever else imports this file, such as a search for doctests, from doing it too.
"""

import os

if os.environ.get("FEDBB_TEST_KERNELS") == "portable":
    import torch

    torch.backends.mkldnn.enabled = False
