package main

import (
	"context"
	"errors"
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

// describe returns the status and the code of an error response.
func describe(response *http.Response, err error) string {
	var failure *plantstore.GenericOpenAPIError
	if !errors.As(err, &failure) {
		panic(err)
	}
	return fmt.Sprintf("error %d %d", response.StatusCode, failure.Model().(plantstore.Error).Error)
}

func main() {
	configuration := plantstore.NewConfiguration()
	configuration.Servers = plantstore.ServerConfigurations{{URL: os.Args[1]}}
	api := plantstore.NewAPIClient(configuration).PlantsAPI
	ctx := context.WithValue(context.Background(), plantstore.ContextAccessToken, os.Args[2])

	for _, plant := range []plantstore.PlantToCreate{
		{Id: 9007199254740993, Name: "Fern", Tag: plantstore.PtrString("Polypodium")},
		{Id: 9223372036854775807, Name: "Black alder"},
	} {
		created, _, err := api.CreatePlant(ctx).PlantToCreate(plant).Execute()
		check(err)
		shown := "no tag"
		if created.HasTag() {
			shown = created.GetTag()
		}
		fmt.Printf("created %s, %s\n", created.GetName(), shown)
	}

	fern := plantstore.PlantToCreate{Id: 9007199254740993, Name: "Fern"}
	_, response, err := api.CreatePlant(ctx).PlantToCreate(fern).Execute()
	fmt.Println(describe(response, err))

	for request := api.ListPlants(ctx).Limit(1); ; {
		page, response, err := request.Execute()
		check(err)
		for _, plant := range page {
			fmt.Println("page", plant.GetName())
		}
		match := nextCursor.FindStringSubmatch(response.Header.Get("Link"))
		if match == nil {
			break
		}
		request = request.Cursor(match[1])
	}

	for _, id := range []int64{9007199254740992, 9007199254740993, 9223372036854775807} {
		response, err := api.DeletePlant(ctx, id).Execute()
		if err == nil {
			fmt.Println("deleted")
		} else {
			fmt.Println(describe(response, err))
		}
	}

	left, _, err := api.ListPlants(ctx).Execute()
	check(err)
	fmt.Println("left", len(left))
}
