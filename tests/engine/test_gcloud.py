"""gcloud's commands on fakecloud, and what they print."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gcloudkit import INSTALLED, MISSING, Gcloud, pointed_at_fakecloud

pytestmark = pytest.mark.proof("gcloud takes 1.5 s of CPU for each of some 200 commands")

PROJECT = "demo-project"
DEBIAN = "--image-family=debian-12 --image-project=debian-cloud"
NODES = f"muster-node@{PROJECT}.iam.gserviceaccount.com"
ADA = "user:ada@example.com"


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[Gcloud]:
    """gcloud with a fakecloud; where it is not installed, the last lines of the run say so."""
    if not INSTALLED:
        pytest.skip(MISSING)
    with pointed_at_fakecloud(tmp_path) as made:
        yield made


@pytest.fixture
def lab(gcloud: Gcloud) -> Gcloud:
    """gcloud in a project with a network and a subnet."""
    gcloud("compute networks create lab --subnet-mode=custom")
    gcloud("compute networks subnets create lab --network=lab --range=10.0.0.0/20")
    return gcloud


def base(link: str) -> str:
    return link.rpartition("/")[2]


def test_networks_and_subnets(gcloud: Gcloud):
    gcloud("compute networks create net --subnet-mode=custom --mtu=1500")
    gcloud("compute networks create other --subnet-mode=custom")
    assert {"net", "other"} <= set(gcloud.values("compute networks list"))
    assert gcloud.values("compute networks list --filter=name=net", "name,mtu") == ["net\t1500"]
    gcloud("compute networks update net --bgp-routing-mode=global")
    assert gcloud.json("compute networks describe net")["routingConfig"] == {
        "routingMode": "GLOBAL"
    }
    gcloud("compute networks subnets create sub --network=net --range=10.9.0.0/24")
    gcloud("compute networks subnets update sub --enable-private-ip-google-access")
    gcloud("compute networks subnets expand-ip-range sub --prefix-length=23")
    (listed,) = gcloud.json("compute networks subnets list --network=net")
    assert (listed["name"], listed["ipCidrRange"]) == ("sub", "10.9.0.0/23")
    described = gcloud.json("compute networks subnets describe sub")
    assert described["privateIpGoogleAccess"] is True
    assert base(described["network"]) == "net"
    assert "already being used by" in gcloud.refused("compute networks delete net")
    gcloud("compute networks subnets delete sub")
    gcloud("compute networks delete net other")
    assert not {"net", "other"} & set(gcloud.values("compute networks list"))


def test_firewall_rules(lab: Gcloud):
    lab("compute firewall-rules create ssh --network=lab --allow=tcp:22 --source-ranges=10.0.0.0/8")
    lab("compute firewall-rules create web --network=lab --allow=tcp:80 --target-tags=web")
    fields = "name,sourceRanges.list(),allowed[].map().firewall_rule().list()"
    assert lab.values("compute firewall-rules list --filter=name=ssh", fields) == [
        "ssh\t10.0.0.0/8\ttcp:22"
    ]
    lab("compute firewall-rules update ssh --allow=tcp:22,icmp --priority=900")
    rule = lab.json("compute firewall-rules describe ssh")
    assert (rule["priority"], rule["direction"]) == (900, "INGRESS")
    assert rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}, {"IPProtocol": "icmp"}]
    lab("compute firewall-rules delete ssh")
    assert lab.values("compute firewall-rules list") == ["web"]
    lab("compute firewall-rules delete web")


def test_addresses_and_routers(lab: Gcloud):
    lab("compute addresses create front")
    lab("compute addresses create inside --subnet=lab --addresses=10.0.0.9")
    assert lab.values("compute addresses list --filter=name=inside", "address,status") == [
        "10.0.0.9\tRESERVED"
    ]
    assert lab.json("compute addresses describe front")["addressType"] == "EXTERNAL"
    lab("compute addresses delete front inside")
    assert lab.values("compute addresses list") == []
    lab("compute routers create router --network=lab")
    lab(
        "compute routers nats create nat --router=router --auto-allocate-nat-external-ips"
        " --nat-all-subnet-ip-ranges"
    )
    (nat,) = lab.json("compute routers describe router")["nats"]
    assert nat["name"] == "nat"
    assert lab.values("compute routers list") == ["router"]
    lab("compute routers delete router")


def test_an_instance_from_create_to_delete(lab: Gcloud):
    made = lab.json(
        f"compute instances create vm {DEBIAN} --subnet=lab --machine-type=n1-standard-2"
        " --labels=team=ml --tags=web --metadata=color=red --scopes=cloud-platform"
    )
    assert [one["name"] for one in made] == ["vm"]
    # The default image: a family too, which gcloud names in the same way.
    lab("compute instances create other --subnet=lab --no-address")
    fields = "name,zone.basename(),machineType.basename(),status"
    assert lab.values("compute instances list --filter=labels.team=ml", fields) == [
        "vm\teurope-west4-a\tn1-standard-2\tRUNNING"
    ]
    assert "10.0.0." in lab("compute instances list")
    assert lab.values("compute instances list --sort-by=name") == ["other", "vm"]
    vm = lab.json("compute instances describe vm")
    assert (vm["labels"], vm["tags"]["items"]) == ({"team": "ml"}, ["web"])
    assert vm["metadata"]["items"] == [{"key": "color", "value": "red"}]
    assert "natIP" in vm["networkInterfaces"][0]["accessConfigs"][0]
    image = lab.json("compute disks describe vm")["sourceImage"]
    assert base(image).startswith("debian-12-bookworm-v")
    lab("compute instances add-labels vm --labels=owner=ada")
    lab("compute instances add-tags vm --tags=db")
    lab("compute instances remove-tags vm --tags=web")
    lab("compute instances add-metadata vm --metadata=shape=round")
    lab("compute instances remove-metadata vm --keys=color")
    vm = lab.json("compute instances describe vm")
    assert (vm["labels"], vm["tags"]["items"]) == ({"team": "ml", "owner": "ada"}, ["db"])
    assert vm["metadata"]["items"] == [{"key": "shape", "value": "round"}]
    lab("compute instances delete vm other")
    assert lab.values("compute instances list") == []
    assert lab.values("compute disks list") == []


def test_an_instance_is_stopped_changed_and_protected(lab: Gcloud):
    lab(f"compute instances create vm {DEBIAN} --subnet=lab --machine-type=n1-standard-2")
    lab("compute disks create data --size=20GB --type=pd-ssd")
    lab("compute instances attach-disk vm --disk=data --device-name=data")
    disks = lab.json("compute instances describe vm")["disks"]
    assert [disk.get("deviceName") for disk in disks] == ["persistent-disk-0", "data"]
    assert lab.values("compute disks list --filter=name=data", "users.basename()") == ["vm"]
    lab("compute instances detach-disk vm --disk=data")
    lab("compute instances stop vm")
    assert lab.values("compute instances list", "status") == ["TERMINATED"]
    lab("compute instances set-machine-type vm --machine-type=n1-standard-4")
    lab("compute instances set-service-account vm --no-service-account --no-scopes")
    lab("compute instances start vm")
    lab("compute instances reset vm")
    vm = lab.json("compute instances describe vm")
    assert (vm["status"], base(vm["machineType"])) == ("RUNNING", "n1-standard-4")
    assert "serviceAccounts" not in vm
    lab("compute instances update vm --deletion-protection")
    assert "it's protected against deletion" in lab.refused("compute instances delete vm")
    lab("compute instances update vm --no-deletion-protection")
    lab("compute instances get-serial-port-output vm")
    role = "roles/compute.instanceAdmin.v1"
    lab(f"compute instances add-iam-policy-binding vm --member={ADA} --role={role}")
    assert lab.json("compute instances get-iam-policy vm")["bindings"] == [
        {"role": role, "members": [ADA]}
    ]
    lab("compute instances delete vm")
    lab("compute disks delete data")


def test_instances_of_a_template_and_many_at_once(lab: Gcloud):
    lab(
        f"compute instance-templates create node {DEBIAN} --machine-type=n1-standard-2"
        " --subnet=lab --region=europe-west4 --labels=set=debug"
    )
    assert lab.values("compute instance-templates list", "name,properties.machineType") == [
        "node\tn1-standard-2"
    ]
    template = lab.json("compute instance-templates describe node")
    assert template["properties"]["labels"] == {"set": "debug"}
    lab("compute instances create vm --source-instance-template=node")
    assert lab.json("compute instances describe vm")["labels"] == {"set": "debug"}
    lab(
        f"compute instances bulk create --name-pattern=n-## --count=2 {DEBIAN} --subnet=lab"
        " --machine-type=n1-standard-2 --zone=europe-west4-a"
    )
    assert lab.values("compute instances list --sort-by=name") == ["n-01", "n-02", "vm"]
    lab("compute instances delete vm n-01 n-02")
    lab("compute instance-templates delete node")
    assert lab.values("compute instance-templates list") == []


def test_disks_and_snapshots(gcloud: Gcloud):
    gcloud("compute disks create data --size=20GB --type=pd-ssd --labels=a=b")
    assert gcloud.values("compute disks list", "name,sizeGb,type.basename()") == [
        "data\t20\tpd-ssd"
    ]
    gcloud("compute disks resize data --size=30GB")
    gcloud("compute disks add-labels data --labels=c=d")
    gcloud("compute disks update data --update-labels=e=f")
    gcloud("compute disks remove-labels data --labels=a")
    disk = gcloud.json("compute disks describe data")
    assert (disk["sizeGb"], disk["labels"]) == ("30", {"c": "d", "e": "f"})
    gcloud("compute snapshots create first --source-disk=data --source-disk-zone=europe-west4-a")
    gcloud("compute disks snapshot data --snapshot-names=second")
    assert gcloud.values("compute snapshots list", "name,diskSizeGb") == ["first\t30", "second\t30"]
    gcloud("compute disks create copy --source-snapshot=first")
    assert base(gcloud.json("compute disks describe copy")["sourceSnapshot"]) == "first"
    gcloud(
        "compute resource-policies create snapshot-schedule daily --start-time=04:00"
        " --daily-schedule --max-retention-days=7"
    )
    gcloud("compute disks add-resource-policies data --resource-policies=daily")
    policies = gcloud.json("compute disks describe data")["resourcePolicies"]
    assert [base(link) for link in policies] == ["daily"]
    gcloud("compute disks delete data copy")
    gcloud("compute snapshots delete first second")
    assert gcloud.values("compute snapshots list") == []
    gcloud("compute resource-policies delete daily")


def test_images(lab: Gcloud):
    public = lab.values("compute images list --filter=family=debian-12", "name,family")
    assert len(public) == 1
    assert public[0].startswith("debian-12-bookworm-v")
    family = "compute images describe-from-family debian-13 --project=debian-cloud"
    assert lab.json(family)["name"].startswith("debian-13-trixie-v")
    lab(f"compute instances create vm {DEBIAN} --subnet=lab")
    create = "compute images create own --source-disk=vm --source-disk-zone=europe-west4-a"
    assert "already being used by" in lab.refused(f"{create} --family=mine")
    lab(f"{create} --family=mine --force")
    lab("compute images add-labels own --labels=a=b")
    own = lab.json("compute images describe own")
    assert (own["family"], own["labels"], base(own["sourceDisk"])) == ("mine", {"a": "b"}, "vm")
    assert lab.values("compute images list --no-standard-images") == ["own"]
    lab("compute instances create second --image-family=mine --subnet=lab")
    assert base(lab.json("compute disks describe second")["sourceImage"]) == "own"
    lab("compute instances delete vm second")
    lab("compute images delete own")
    assert lab.values("compute images list --no-standard-images") == []


def test_the_catalog_and_operations(lab: Gcloud):
    assert "europe-west4-a" in lab.values("compute zones list")
    assert "europe-west4" in lab.values("compute regions list")
    quotas = lab.json("compute regions describe europe-west4")["quotas"]
    assert "CPUS" in [quota["metric"] for quota in quotas]
    types = "compute machine-types list --zones=europe-west4-a --filter=name=n1-standard-4"
    assert lab.values(types, "name,guestCpus") == ["n1-standard-4\t4"]
    assert lab.json("compute machine-types describe n1-standard-2")["guestCpus"] == 2
    disks = lab.values("compute disk-types list --zones=europe-west4-a")
    assert {"pd-ssd", "pd-balanced"} <= set(disks)
    gpus = "compute accelerator-types list --filter=zone:europe-west4-b"
    assert "nvidia-tesla-t4" in lab.values(gpus)
    assert lab.json("compute project-info describe")["name"] == PROJECT
    made = "compute operations list --filter='operationType=insert AND targetLink~/networks/lab$'"
    (operation,) = lab.values(made)
    described = lab.json(f"compute operations describe {operation} --global")
    assert (described["status"], base(described["targetLink"])) == ("DONE", "lab")


def test_secrets(gcloud: Gcloud, tmp_path: Path):
    payload = tmp_path / "payload"
    payload.write_bytes(bytes(range(256)))
    gcloud("secrets create key --replication-policy=automatic --labels=team=ml")
    gcloud(f"secrets create other --data-file={payload}")
    assert gcloud.values("secrets list") == ["key", "other"]
    assert gcloud.values("secrets list --filter=labels.team=ml") == ["key"]
    copy = tmp_path / "copy"
    gcloud(f"secrets versions access 1 --secret=other --out-file={copy}")
    assert copy.read_bytes() == payload.read_bytes()
    payload.write_text("first\n")
    gcloud(f"secrets versions add key --data-file={payload}")
    payload.write_text("second\n")
    gcloud(f"secrets versions add key --data-file={payload}")
    assert gcloud("secrets versions access latest --secret=key") == "second\n"
    gcloud("secrets versions disable 2 --secret=key")
    assert "DISABLED" in gcloud.refused("secrets versions access 2 --secret=key")
    assert gcloud.values("secrets versions list key --filter=state=ENABLED") == ["1"]
    gcloud("secrets versions enable 2 --secret=key")
    gcloud("secrets versions destroy 1 --secret=key")
    assert gcloud.json("secrets versions describe 1 --secret=key")["state"] == "DESTROYED"
    gcloud("secrets update key --update-labels=a=b")
    assert gcloud.json("secrets describe key")["labels"] == {"a": "b", "team": "ml"}
    binding = f"key --member={ADA} --role=roles/secretmanager.secretAccessor"
    gcloud(f"secrets add-iam-policy-binding {binding}")
    (bound,) = gcloud.json("secrets get-iam-policy key")["bindings"]
    assert bound == {"role": "roles/secretmanager.secretAccessor", "members": [ADA]}
    gcloud(f"secrets remove-iam-policy-binding {binding}")
    assert not gcloud.json("secrets get-iam-policy key").get("bindings")
    gcloud("secrets delete key")
    assert gcloud.values("secrets list") == ["other"]


def test_buckets(gcloud: Gcloud):
    gcloud(
        "storage buckets create gs://lab-one --location=europe-west4 --uniform-bucket-level-access"
    )
    gcloud("storage buckets create gs://lab-two --location=EU")
    assert gcloud.values("storage buckets list", "name,location") == [
        "lab-one\tEUROPE-WEST4",
        "lab-two\tEU",
    ]
    gcloud("storage buckets update gs://lab-one --versioning --update-labels=team=ml")
    described = gcloud.json("storage buckets describe gs://lab-one")
    assert (described["versioning_enabled"], described["labels"]) == (True, {"team": "ml"})
    binding = f"gs://lab-one --member={ADA} --role=roles/storage.objectViewer"
    gcloud(f"storage buckets add-iam-policy-binding {binding}")
    bindings = gcloud.json("storage buckets get-iam-policy gs://lab-one")["bindings"]
    assert {"role": "roles/storage.objectViewer", "members": [ADA]} in bindings
    gcloud(f"storage buckets remove-iam-policy-binding {binding}")
    bindings = gcloud.json("storage buckets get-iam-policy gs://lab-one")["bindings"]
    assert "roles/storage.objectViewer" not in [bound["role"] for bound in bindings]
    gcloud("storage buckets delete gs://lab-one gs://lab-two")
    assert gcloud.values("storage buckets list") == []


def test_objects(gcloud: Gcloud, tmp_path: Path):
    gcloud("storage buckets create gs://lab-data --location=europe-west4")
    folder = tmp_path / "data"
    folder.mkdir()
    note, large = folder / "note.txt", folder / "large.bin"
    note.write_bytes(b"a note\r\nin two lines\r")
    # From 8 MiB on gcloud sends an object in parts.
    large.write_bytes(bytes(range(256)) * 40_000)
    gcloud(f"storage cp {note} gs://lab-data/docs/note.txt --content-type=text/x-notes")
    gcloud(f"storage cp {large} gs://lab-data/docs/")
    assert gcloud("storage ls gs://lab-data").split() == ["gs://lab-data/docs/"]
    assert gcloud.values("storage objects list gs://lab-data/**", "name,size") == [
        "docs/large.bin\t10240000",
        f"docs/note.txt\t{note.stat().st_size}",
    ]
    described = gcloud.json("storage objects describe gs://lab-data/docs/note.txt")
    assert described["content_type"] == "text/x-notes"
    assert "in two lines" in gcloud("storage cat gs://lab-data/docs/note.txt")
    back = tmp_path / "back"
    back.mkdir()
    gcloud(f"storage cp gs://lab-data/docs/* {back}")
    assert (back / "note.txt").read_bytes() == note.read_bytes()
    assert (back / "large.bin").read_bytes() == large.read_bytes()
    gcloud("storage objects update gs://lab-data/docs/note.txt --custom-metadata=a=b")
    gcloud("storage cp gs://lab-data/docs/note.txt gs://lab-data/docs/copy.txt")
    copied = gcloud.json("storage objects describe gs://lab-data/docs/copy.txt")
    assert (copied["content_type"], copied["custom_fields"]) == ("text/x-notes", {"a": "b"})
    gcloud("storage mv gs://lab-data/docs/copy.txt gs://lab-data/moved.txt")
    gcloud(f"storage rsync {folder} gs://lab-data/synced --recursive")
    assert gcloud.values("storage objects list gs://lab-data/**") == [
        "docs/large.bin",
        "docs/note.txt",
        "moved.txt",
        "synced/large.bin",
        "synced/note.txt",
    ]
    gcloud("storage rm gs://lab-data/docs/**")
    assert gcloud("storage ls gs://lab-data/moved.txt").split() == ["gs://lab-data/moved.txt"]
    assert "matched no objects" in gcloud.refused("storage cat gs://lab-data/docs/note.txt")
    assert "not empty" in gcloud.refused("storage buckets delete gs://lab-data")
    gcloud("storage rm --recursive gs://lab-data")
    assert gcloud.values("storage buckets list") == []


def test_service_accounts_and_policies(gcloud: Gcloud, tmp_path: Path):
    gcloud("iam service-accounts create muster-node --display-name=Nodes")
    accounts = "iam service-accounts list --filter=email:muster-node"
    assert gcloud.values(accounts, "email,displayName") == [f"{NODES}\tNodes"]
    gcloud(f"iam service-accounts update {NODES} --description=compute")
    gcloud(f"iam service-accounts disable {NODES}")
    described = gcloud.json(f"iam service-accounts describe {NODES}")
    assert (described["description"], described["disabled"]) == ("compute", True)
    gcloud(f"iam service-accounts enable {NODES}")
    key = tmp_path / "key.json"
    gcloud(f"iam service-accounts keys create {key} --iam-account={NODES}")
    assert NODES in key.read_text()
    keys = f"iam service-accounts keys list --iam-account={NODES}"
    (name,) = gcloud.values(keys, "name.basename()")
    gcloud(f"iam service-accounts keys delete {name} --iam-account={NODES}")
    assert gcloud.values(keys) == []
    user = "roles/iam.serviceAccountUser"
    gcloud(f"iam service-accounts add-iam-policy-binding {NODES} --member={ADA} --role={user}")
    policy = gcloud.json(f"iam service-accounts get-iam-policy {NODES}")
    assert policy["bindings"] == [{"role": user, "members": [ADA]}]
    member = f"serviceAccount:{NODES}"
    bind = f"projects add-iam-policy-binding {PROJECT} --member={member}"
    gcloud(f"{bind} --role=roles/compute.viewer")
    condition = """--condition="expression=resource.name.startsWith('x'),title=only-x" """
    gcloud(f"{bind} --role=roles/compute.instanceAdmin.v1 {condition}")
    bindings = gcloud.json(f"projects get-iam-policy {PROJECT}")["bindings"]
    assert {"role": "roles/compute.viewer", "members": [member]} in bindings
    (conditional,) = [bound for bound in bindings if "condition" in bound]
    assert conditional["condition"]["title"] == "only-x"
    gcloud(f"{bind.replace('add', 'remove', 1)} --role=roles/compute.viewer --condition=None")
    bindings = gcloud.json(f"projects get-iam-policy {PROJECT}")["bindings"]
    assert "roles/compute.viewer" not in [bound["role"] for bound in bindings]
    gcloud(f"iam service-accounts delete {NODES}")
    assert gcloud.values(accounts) == []


def test_projects_roles_and_services(gcloud: Gcloud):
    assert gcloud.values("projects list", "projectId") == [PROJECT]
    assert gcloud.json(f"projects describe {PROJECT}")["lifecycleState"] == "ACTIVE"
    here = f"--project={PROJECT}"
    gcloud(f"iam roles create tester {here} --permissions=compute.instances.get --title=Tester")
    gcloud(f"iam roles update tester {here} --add-permissions=compute.instances.list")
    role = gcloud.json(f"iam roles describe tester {here}")
    assert role["includedPermissions"] == ["compute.instances.get", "compute.instances.list"]
    roles = f"iam roles list {here}"
    assert gcloud.values(roles, "title") == ["Tester"]
    gcloud(f"iam roles delete tester {here}")
    assert gcloud.values(roles) == []
    viewer = gcloud.json("iam roles describe roles/compute.viewer")
    assert "compute.instances.get" in viewer["includedPermissions"]
    gcloud("services disable iap.googleapis.com")
    enabled = "services list --enabled"
    assert "iap.googleapis.com" not in gcloud.values(enabled, "config.name")
    gcloud("services enable iap.googleapis.com")
    assert "iap.googleapis.com" in gcloud.values(enabled, "config.name")


def test_what_gcloud_says_of_an_error(gcloud: Gcloud):
    gone = gcloud.refused("compute instances describe gone")
    assert f"'projects/{PROJECT}/zones/europe-west4-a/instances/gone' was not found" in gone
    assert "NOT_FOUND" in gcloud.refused("secrets describe gone")
    family = "compute disks create d --image-family=gone"
    assert "family/gone'. The referenced image resource cannot be found" in gcloud.refused(family)
    assert gcloud.values("compute disks list") == []
