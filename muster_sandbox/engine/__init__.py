"""Pulumi's engine on this machine: built where no index has it, with a home of its own."""
