"""ModelScope's OFA, imported so that it runs on a CPU without the packages only training needs."""

# ruff: noqa: E402 - what is imported depends on the stand-ins before it
import os
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import stubs

stubs.install()

import modelscope.utils.import_utils  # noqa: F401 - puts the module where it is changed below
import torch

# The gate in front of lazy imports asks for distribution metadata that a stand-in does not have. It is reached through
# sys.modules: the attribute modelscope.utils.import_utils is another module, of transformers.
sys.modules["modelscope.utils.import_utils"].requires = lambda *args, **kwargs: None

from modelscope.models.multi_modal import ofa_for_all_tasks
from modelscope.models.multi_modal.ofa import OFAModel
from modelscope.models.multi_modal.ofa.configuration_ofa import OFAConfig
from modelscope.models.multi_modal.ofa.utils.utils import expand_mask
from modelscope.pipelines import pipeline
from modelscope.preprocessors import OfaPreprocessor

torch.set_grad_enabled(False)

__all__ = ["OFAConfig", "OFAModel", "OfaPreprocessor", "expand_mask", "ofa_for_all_tasks", "pipeline"]
