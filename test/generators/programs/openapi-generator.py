import re
import sys

from plant_store import ApiClient, ApiException, Configuration, NewPlant, PlantsApi


def describe(error: ApiException) -> str:
    assert error.data is not None
    return f"error {error.status} {error.data.error}"


url, token = sys.argv[1:]
with ApiClient(Configuration(host=url, access_token=token)) as client:
    api = PlantsApi(client)

    for plant in (
        NewPlant(id=9007199254740993, name="Fern", tag="Polypodium"),
        NewPlant(id=9223372036854775807, name="Black alder"),
    ):
        created = api.create_plant(plant)
        print(f"created {created.name}, {created.tag or 'no tag'}")

    try:
        api.create_plant(NewPlant(id=9007199254740993, name="Fern"))
    except ApiException as error:
        print(describe(error))

    cursor = None
    while True:
        page = api.list_plants_with_http_info(limit=1, cursor=cursor)
        for listed in page.data:
            print(f"page {listed.name}")
        link = re.search(r"[?&]cursor=([^&>]+)", (page.headers or {}).get("Link", ""))
        if link is None:
            break
        cursor = link[1]

    for id in (9007199254740992, 9007199254740993, 9223372036854775807):
        try:
            api.delete_plant(id)
            print("deleted")
        except ApiException as error:
            print(describe(error))

    print(f"left {len(api.list_plants())}")
