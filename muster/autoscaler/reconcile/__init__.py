"""What is to be done, from what is observed and what is remembered: all decisions; pure."""
