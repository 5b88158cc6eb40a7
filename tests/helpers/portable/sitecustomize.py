"""Python imports this at its start if the folder is on its path: torch computes without oneDNN.

oneDNN chooses kernels by kind and caches of the processor, and no variable switches it off.
"""

import torch

torch.backends.mkldnn.enabled = False
