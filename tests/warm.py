"""Imports that take seconds and start no threads: what the server of ``children`` starts with."""

import gc

import lightning
import torch
import transformers
from transformers import CLIPTextModel, VisionTextDualEncoderModel

__all__ = ["CLIPTextModel", "VisionTextDualEncoderModel", "lightning", "torch", "transformers"]

gc.freeze()  # no child searches for garbage among what was imported
