"""Virtual machines with a kernel of their own: what containers can't show."""
