"""`make demo`: the lab on one machine, raised by site.yml on containers, and its jobs.

instance  a copy of inventories/demo for this machine, and its containers
tour      what ada does on it
cli       the commands
"""
