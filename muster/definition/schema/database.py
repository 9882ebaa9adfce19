"""The database that slurmdbd writes to."""

from typing import Annotated

from pydantic import Field

from muster.definition.schema.base import Model

DATABASE_NAME = "slurm_acct_db"
DATABASE_USER = "slurm"


class Database(Model):
    """A database server that Muster did not install; its password is `slurmdbd_password`."""

    host: Annotated[str, Field(description="Name or address of the server.")]
    port: Annotated[int, Field(ge=1, le=65535, description="Its TCP port.")] = 3306
    name: Annotated[str, Field(description="The database, for slurmdbd alone.")] = DATABASE_NAME
    login: Annotated[
        str, Field(description="Login of a user of the server who has all rights on the database.")
    ] = DATABASE_USER
