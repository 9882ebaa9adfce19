# SPDX-License-Identifier: Apache-2.0
"""The model store, and downloads that are whole and checked, or not there.

Python's standard library alone, but for `hub`, which uses huggingface_hub: it runs with the
system's Python 3.10 and later.
"""
