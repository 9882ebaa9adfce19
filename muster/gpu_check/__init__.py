"""What Muster makes of the NVIDIA GPUs of one machine, for real: `make gpu-check`."""
