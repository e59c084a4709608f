package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"

	"example.test/app/plantstore"
)

var nextCursor = regexp.MustCompile(`[?&]cursor=([^&>]+)`)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	authorize := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}
	client, err := plantstore.NewClientWithResponses(os.Args[1], plantstore.WithRequestEditorFn(authorize))
	check(err)

	tag := "Polypodium"
	for _, plant := range []plantstore.NewPlant{
		{Id: 9007199254740993, Name: "Fern", Tag: &tag},
		{Id: 9223372036854775807, Name: "Black alder"},
	} {
		created, err := client.CreatePlantWithResponse(ctx, nil, plant)
		check(err)
		shown := "no tag"
		if created.JSON200.Tag != nil {
			shown = *created.JSON200.Tag
		}
		fmt.Printf("created %s, %s\n", created.JSON200.Name, shown)
	}

	fern := plantstore.NewPlant{Id: 9007199254740993, Name: "Fern"}
	again, err := client.CreatePlantWithResponse(ctx, nil, fern)
	check(err)
	fmt.Printf("error %d %d\n", again.StatusCode(), again.JSON400.Error)

	limit := int32(1)
	for params := (plantstore.ListPlantsParams{Limit: &limit}); ; {
		page, err := client.ListPlantsWithResponse(ctx, &params)
		check(err)
		for _, plant := range *page.JSON200 {
			fmt.Println("page", plant.Name)
		}
		match := nextCursor.FindStringSubmatch(page.HTTPResponse.Header.Get("Link"))
		if match == nil {
			break
		}
		params.Cursor = &match[1]
	}

	for _, id := range []int64{9007199254740992, 9007199254740993, 9223372036854775807} {
		deleted, err := client.DeletePlantWithResponse(ctx, id)
		check(err)
		if deleted.StatusCode() == http.StatusNoContent {
			fmt.Println("deleted")
		} else {
			fmt.Printf("error %d %d\n", deleted.StatusCode(), deleted.JSON404.Error)
		}
	}

	left, err := client.ListPlantsWithResponse(ctx, nil)
	check(err)
	fmt.Println("left", len(*left.JSON200))
}
