"""A cluster's definition -> what its hosts get: role variables and files, as plain data. Pure."""
