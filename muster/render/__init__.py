"""A cluster's definition -> the role variables and files of its hosts, as plain data. Pure."""
