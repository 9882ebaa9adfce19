"""Which of Google's APIs are enabled in the project; a call of another one is 403."""

from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.cloud import Cloud

KIND = "serviceusage.services"
"""The store's kind; scope: project id, name: compute.googleapis.com. Absent: as in CATALOG."""

CATALOG = {
    "cloudbilling.googleapis.com": ("Cloud Billing API", True),
    "cloudresourcemanager.googleapis.com": ("Cloud Resource Manager API", True),
    "compute.googleapis.com": ("Compute Engine API", True),
    "iam.googleapis.com": ("Identity and Access Management (IAM) API", True),
    "iap.googleapis.com": ("Cloud Identity-Aware Proxy API", True),
    "logging.googleapis.com": ("Cloud Logging API", False),
    "monitoring.googleapis.com": ("Cloud Monitoring API", False),
    "oslogin.googleapis.com": ("Cloud OS Login API", False),
    "secretmanager.googleapis.com": ("Secret Manager API", True),
    "serviceusage.googleapis.com": ("Service Usage API", True),
    "storage.googleapis.com": ("Google Cloud Storage JSON API", True),
}
"""Service -> title, and whether it is enabled from the start."""


def require(cloud: Cloud, name: str) -> None:
    """Refuse a call to an API ("compute") that isn't enabled in the project."""
    service = f"{name}.googleapis.com"
    if enabled(cloud, service):
        return
    number = cloud.settings.project_number
    title = CATALOG[service][0]
    address = f"https://console.developers.google.com/apis/api/{service}/overview?project={number}"
    raise ApiError(
        403,
        "accessNotConfigured",
        f"{title} has not been used in project {number} before or it is disabled. Enable it by "
        f"visiting {address} then retry. If you enabled this API recently, wait a few minutes "
        "for the action to propagate to our systems and retry.",
        domain="usageLimits",
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "SERVICE_DISABLED",
                "domain": "googleapis.com",
                "metadata": {"service": service, "consumer": f"projects/{number}"},
            }
        ],
    )


def enabled(cloud: Cloud, service: str) -> bool:
    """Whether a service of the catalog is enabled."""
    stored = cloud.store.get(KIND, cloud.settings.project, service)
    return stored["state"] == "ENABLED" if stored else CATALOG[service][1]
