"""The environment with which Google's tools use a fakecloud; their programs stay unchanged."""

from pathlib import Path

from muster_sandbox.fakecloud.identity import OWNER_TOKEN

# Pulumi's GCP provider: GOOGLE_<PRODUCT>_CUSTOM_ENDPOINT, each with a slash at its end.
# gcloud: CLOUDSDK_API_ENDPOINT_OVERRIDES_<API>, https://cloud.google.com/sdk/gcloud/reference/config
# (its compute is v1, the provider's beta).
PULUMI = {
    "COMPUTE": "compute/beta/",
    "STORAGE": "storage/v1/",
    "SECRET_MANAGER": "secretmanager/v1/",
    "IAM_BETA": "iam/v1/",
    "RESOURCE_MANAGER": "cloudresourcemanager/v1/",
    "CLOUD_BILLING": "cloudbilling/v1/",
    "IAP": "iap/v1/",
    "SERVICE_USAGE": "serviceusage/v1/",
}
GCLOUD = {
    "COMPUTE": "compute/v1/",
    "STORAGE": "storage/v1/",
    "SECRETMANAGER": "secretmanager/",
    "IAM": "iam/",
    "CLOUDRESOURCEMANAGER": "cloudresourcemanager/",
    "CLOUDBILLING": "cloudbilling/",
    "IAP": "iap/",
    "SERVICEUSAGE": "serviceusage/",
}


def endpoints(url: str) -> dict[str, str]:
    """Variables that say where each API is, as Pulumi's GCP provider and Muster read them."""
    return {f"GOOGLE_{name}_CUSTOM_ENDPOINT": f"{url}/{path}" for name, path in PULUMI.items()}


def environment(url: str, project: str, token_file: Path | None = None) -> dict[str, str]:
    """Variables for Pulumi, gcloud and Google's Python clients; `url` is fakecloud's.

    `token_file` has the owner's token for gcloud, which reads it only from a file.
    """
    variables = endpoints(url) | {
        f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": f"{url}/{path}" for name, path in GCLOUD.items()
    }
    variables |= {
        "GOOGLE_OAUTH_ACCESS_TOKEN": OWNER_TOKEN,
        "GOOGLE_PROJECT": project,
        "GOOGLE_CLOUD_PROJECT": project,
        "CLOUDSDK_CORE_PROJECT": project,
        "STORAGE_EMULATOR_HOST": url,
        # The provider asks compute.googleapis.com for the regions, whatever its endpoint is.
        "PULUMI_GCP_SKIP_REGION_VALIDATION": "true",
        # Any https request to another machine is refused, and the host is logged.
        "HTTPS_PROXY": url,
    }
    if token_file:
        variables["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"] = str(token_file)
    return variables
