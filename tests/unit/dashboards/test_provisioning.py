from __future__ import annotations

from tests.extras import package
from tests.unit.dashboards.boards import FOLDER

from holdfast_sidecar.cli.grafana.push import OWN_FOLDER

yaml = package("yaml")


def test_provisioned_dashboards_lie_in_the_folder_that_a_push_uses() -> None:
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards.yaml").read_text())["providers"]
    assert (provider["folderUid"], provider["folder"]) == (OWN_FOLDER.uid, OWN_FOLDER.title)
    assert provider["type"] == "file"
    assert not provider["allowUiUpdates"]
    assert "path" in provider["options"]


def test_the_provisioned_data_source_is_the_default_prometheus_and_has_no_secret() -> None:
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources.yaml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["jsonData"]["timeInterval"]
    assert not {"password", "basicAuthPassword", "secureJsonData"} & set(source)
