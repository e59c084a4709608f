import re
import sys

from plant_store_client import AuthenticatedClient
from plant_store_client.api.plants import create_plant, delete_plant, list_plants
from plant_store_client.models import Error, NewPlant
from plant_store_client.types import UNSET, Response


def describe(response: Response) -> str:
    assert isinstance(response.parsed, Error)
    return f"error {response.status_code} {response.parsed.error}"


url, token = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=token) as client:
    for plant in (
        NewPlant(id=9007199254740993, name="Fern", tag="Polypodium"),
        NewPlant(id=9223372036854775807, name="Black alder"),
    ):
        created = create_plant.sync(client=client, body=plant)
        assert created is not None and not isinstance(created, Error)
        print(f"created {created.name}, {created.tag or 'no tag'}")

    again = NewPlant(id=9007199254740993, name="Fern")
    print(describe(create_plant.sync_detailed(client=client, body=again)))

    cursor = None
    while True:
        page = list_plants.sync_detailed(client=client, limit=1, cursor=cursor or UNSET)
        assert isinstance(page.parsed, list)
        for listed in page.parsed:
            print(f"page {listed.name}")
        link = re.search(r"[?&]cursor=([^&>]+)", page.headers.get("Link", ""))
        if link is None:
            break
        cursor = link[1]

    for id in (9007199254740992, 9007199254740993, 9223372036854775807):
        deleted = delete_plant.sync_detailed(id, client=client)
        print("deleted" if deleted.status_code == 204 else describe(deleted))

    left = list_plants.sync(client=client)
    assert isinstance(left, list)
    print(f"left {len(left)}")
