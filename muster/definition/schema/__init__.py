"""The schema of the definition: pydantic models, one file for each part of it."""
