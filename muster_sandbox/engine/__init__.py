"""Pulumi's engine on this machine, built with Go where it isn't installed, with its own home."""
