"""The examples of deployments: they are valid, and their applications are ones that can be built."""

import subprocess

import yaml
from ray.serve.schema import ServeDeploySchema

from conftest import ROOT
from rullama.ray._config import AppConfig

DEPLOY = ROOT / "examples" / "deploy"


def test_the_kubernetes_manifest_has_an_application_that_fits_its_cluster():
    manifest = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    deploy = ServeDeploySchema.model_validate(yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    (application,) = deploy.applications
    config = AppConfig.of(application.args)

    cluster = manifest["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    assert config.max_replicas <= group["maxReplicas"] and config.min_replicas <= group["replicas"]
    (worker,) = group["template"]["spec"]["containers"]
    limits = worker["resources"]["limits"]
    assert config.num_gpus <= int(limits["nvidia.com/gpu"]) and config.num_cpus <= int(limits["cpu"])
    mounts = {one["mountPath"] for one in worker["volumeMounts"]}
    assert str(config.model).rsplit("/", 1)[0] in mounts
    assert {m["name"] for m in worker["volumeMounts"]} == {
        v["name"] for v in group["template"]["spec"]["volumes"]
    }
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["image"] == worker["image"]


def test_the_unit_of_systemd_is_valid(tmp_path):
    unit = (DEPLOY / "rullama-ray.service").read_text()
    # The program need not be there; everything else is checked.
    path = tmp_path / "rullama-ray.service"
    path.write_text(unit.replace("/opt/rullama/bin/ray", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_application_in_the_document_can_be_built():
    text = (ROOT / "docs" / "ray.md").read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    deploy = ServeDeploySchema.model_validate(yaml.safe_load(block))
    assert AppConfig.of(deploy.applications[0].args).max_replicas == 4
