"""The services: the import of each registers its handlers."""
