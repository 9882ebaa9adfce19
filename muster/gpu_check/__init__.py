"""Check Muster against the real NVIDIA GPUs of one machine: `make gpu-check`."""
