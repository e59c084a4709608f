// PocketBase with its defaults, except that each commit is on disk before its response, as in our service.
// Creates and lists need the token of a user. Argument: a separate folder for its files, and for that token.
package main

import (
	"encoding/json"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations"
	"github.com/pocketbase/pocketbase/tools/types"
)

func main() {
	log.Fatal(serve(os.Args[1]))
}

func serve(folder string) error {
	app := core.NewBaseApp(core.BaseAppConfig{DataDir: folder, DBConnect: connect})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	if err := app.Save(plants()); err != nil {
		return err
	}
	token, err := createToken(app)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte(token), 0o600); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	app.OnServe().BindFunc(func(event *core.ServeEvent) error {
		event.Listener = listener
		// Without a superuser, the installer would open a browser.
		event.InstallerFunc = nil
		return event.Next()
	})
	url := map[string]string{"url": "http://" + listener.Addr().String()}
	if err := json.NewEncoder(os.Stdout).Encode(url); err != nil {
		return err
	}
	return apis.Serve(app, apis.ServeConfig{})
}

// connect sets the pragmas of core.DefaultDBConnect with synchronous=FULL: with NORMAL, a commit is not synced to
// disk. The request log keeps the default.
func connect(path string) (*dbx.DB, error) {
	if filepath.Base(path) != "data.db" {
		return core.DefaultDBConnect(path)
	}
	return dbx.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"+
		"&_pragma=journal_size_limit(200000000)&_pragma=synchronous(FULL)&_pragma=foreign_keys(ON)"+
		"&_pragma=temp_store(MEMORY)&_pragma=cache_size(-32000)")
}

// plants is a collection whose ids are numbers, kept as text: PocketBase has no other ids.
func plants() *core.Collection {
	collection := core.NewBaseCollection("plants")
	collection.Fields.Add(
		&core.TextField{
			Name: "id", System: true, Required: true, PrimaryKey: true, Min: 1, Max: 19, Pattern: "^[0-9]+$",
		},
		&core.TextField{Name: "name", Required: true},
		&core.TextField{Name: "tag"},
	)
	collection.CreateRule = types.Pointer(`@request.auth.id != ""`)
	collection.ListRule = collection.CreateRule
	return collection
}

func createToken(app core.App) (string, error) {
	users, err := app.FindCollectionByNameOrId("users")
	if err != nil {
		return "", err
	}
	user := core.NewRecord(users)
	user.SetEmail("bench@example.com")
	user.SetRandomPassword()
	if err := app.Save(user); err != nil {
		return "", err
	}
	return user.NewAuthToken()
}
