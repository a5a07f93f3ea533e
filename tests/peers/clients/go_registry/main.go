// franz-go's client of schema registries: `registry-client URL COMMAND`, which fails with a line if an answer differs
// from what the client's users expect. `write` prints a framed value in hexadecimal, `read HEX` reads one.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	first  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	second = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":""}]}`
	wrong  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`
	line   = `{"type":"record","name":"Line","fields":[{"name":"order","type":"Order"}]}`
	proto  = "syntax = \"proto3\";\nmessage Item { string sku = 1; }\n"
	object = `{"type":"object","properties":{"x":{"type":"integer"}}}`
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		check(fmt.Errorf("%s: got %#v, want %#v", what, got, want))
	}
}

func refused(what string, err error, code int) {
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		check(fmt.Errorf("%s: got %v, want an answer with the error %d", what, err, code))
	}
	equal(what, answer.ErrorCode, code)
}

func main() {
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch os.Args[2] {
	case "routes":
		schemas(ctx, client)
		settings(ctx, client)
		deletions(ctx, client)
	case "write":
		write(ctx, client)
	case "read":
		read(ctx, client, must(hex.DecodeString(os.Args[3])))
	}
}

func schemas(ctx context.Context, client *sr.Client) {
	types := must(client.SupportedTypes(ctx))
	equal("types", len(types), 3)
	order := must(client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: first}))
	equal("version", []int{order.Version, order.ID}, []int{1, 1})
	equal("again", must(client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: first})).ID, 1)
	equal("grown", must(client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: second})).Version, 2)
	_, err := client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: wrong})
	refused("incompatible", err, 40901)
	_, err = client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: `{"type":"nothing"}`})
	refused("invalid", err, 42201)
	references := []sr.SchemaReference{{Name: "Order", Subject: "orders-value", Version: 1}}
	used := must(client.CreateSchema(ctx, "lines", sr.Schema{Schema: line, References: references}))
	equal("references", used.References, references)
	users := must(client.SchemaReferences(ctx, "orders-value", 1))
	equal("users", []any{len(users), users[0].Subject}, []any{1, "lines"})
	must(client.CreateSchema(ctx, "items", sr.Schema{Schema: proto, Type: sr.TypeProtobuf}))
	must(client.CreateSchema(ctx, "points", sr.Schema{Schema: object, Type: sr.TypeJSON}))
	equal("Protobuf", must(client.SchemaByVersion(ctx, "items", -1)).Type, sr.TypeProtobuf)
	equal("JSON", must(client.SchemaTextByVersion(ctx, "points", 1)), object)

	subjects := must(client.Subjects(ctx))
	sort.Strings(subjects)
	equal("subjects", subjects, []string{"items", "lines", "orders-value", "points"})
	equal("prefix", must(client.Subjects(sr.WithParams(ctx, sr.SubjectPrefix("ord")))), []string{"orders-value"})
	equal("versions", must(client.SubjectVersions(ctx, "orders-value")), []int{1, 2})
	equal("by id", must(client.SchemaByID(ctx, 2)).Schema, second)
	equal("text by id", must(client.SchemaTextByID(ctx, 1)), first)
	equal("subjects of an id", must(client.SubjectsByID(ctx, 1)), []string{"orders-value"})
	equal("versions of an id", must(client.SchemaVersionsByID(ctx, 2)), []sr.SubjectVersion{{Subject: "orders-value", Version: 2}})
	equal("usages", must(client.SchemaUsagesByID(ctx, 1))[0].Subject, "orders-value")
	equal("looked up", must(client.LookupSchema(ctx, "orders-value", sr.Schema{Schema: second})).Version, 2)
	equal("all", len(must(client.AllSchemas(ctx))), 5)
	equal("of a subject", len(must(client.Schemas(ctx, "orders-value"))), 2)
	_, err = client.SchemaByID(ctx, 99)
	refused("absent id", err, 40403)
	_, err = client.SchemaByVersion(ctx, "nothing", 1)
	refused("absent subject", err, 40401)
	_, err = client.SchemaByVersion(ctx, "orders-value", 9)
	refused("absent version", err, 40402)

	fits := must(client.CheckCompatibility(ctx, "orders-value", -1, sr.Schema{Schema: second}))
	equal("fits", fits.Is, true)
	verbose := sr.WithParams(ctx, sr.Verbose)
	fits = must(client.CheckCompatibility(verbose, "orders-value", -1, sr.Schema{Schema: wrong}))
	equal("does not fit", []bool{fits.Is, len(fits.Messages) > 0}, []bool{false, true})

	guid := must(client.SchemaByVersion(ctx, "orders-value", 1)).GUID
	equal("by GUID", must(client.SchemaByGUID(ctx, guid)).Schema.Schema, first)
	equal("ids of a GUID", must(client.SchemaIDsByGUID(ctx, guid))[0].ID, 1)
}

func settings(ctx context.Context, client *sr.Client) {
	level := func() any {
		return client.Compatibility(sr.WithParams(ctx, sr.DefaultToGlobal), "orders-value")[0].Level
	}
	equal("default", level(), sr.CompatBackward)
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "orders-value")
	check(set[0].Err)
	equal("set", level(), sr.CompatFullTransitive)
	check(client.ResetCompatibility(ctx, "orders-value")[0].Err)
	equal("reset", level(), sr.CompatBackward)
	refused("no level", client.Compatibility(ctx, "orders-value")[0].Err, 40408)

	check(client.SetMode(ctx, sr.ModeReadOnly, "orders-value")[0].Err)
	equal("mode", client.Mode(ctx, "orders-value")[0].Mode, sr.ModeReadOnly)
	_, err := client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: `"string"`})
	refused("read-only", err, 42205)
	check(client.ResetMode(ctx, "orders-value")[0].Err)
	refused("no mode", client.Mode(ctx, "orders-value")[0].Err, 40409)

	check(client.SetMode(sr.WithParams(ctx, sr.Force), sr.ModeImport, "imported")[0].Err)
	kept := must(client.CreateSchemaWithIDAndVersion(ctx, "imported", sr.Schema{Schema: `"double"`}, 77, 5))
	equal("imported", []int{kept.ID, kept.Version}, []int{77, 5})

	equal("context", must(client.RegisterSchema(ctx, ":.west:orders", sr.Schema{Schema: second}, -1, -1)), 1)
	west := sr.InContext(ctx, ".west")
	equal("its id", must(client.SchemaTextByID(west, 1)), second)
	equal("its subject", must(client.CreateSchema(west, "orders", sr.Schema{Schema: second})).Subject, ":.west:orders")
	equal("contexts", must(client.Contexts(ctx)), []string{".", ".west"})
}

func deletions(ctx context.Context, client *sr.Client) {
	_, err := client.DeleteSubject(ctx, "orders-value", sr.SoftDelete)
	refused("in use", err, 42206)
	equal("soft", must(client.DeleteSubject(ctx, "lines", sr.SoftDelete)), []int{1})
	check(client.DeleteSchema(ctx, "orders-value", 2, sr.SoftDelete))
	equal("left", must(client.SubjectVersions(ctx, "orders-value")), []int{1})
	all := sr.WithParams(ctx, sr.ShowDeleted)
	equal("with deleted", must(client.SubjectVersions(all, "orders-value")), []int{1, 2})
	_, err = client.DeleteSubject(ctx, "items", sr.HardDelete)
	refused("not soft first", err, 40405)
	must(client.DeleteSubject(ctx, "items", sr.SoftDelete))
	equal("hard", must(client.DeleteSubject(ctx, "items", sr.HardDelete)), []int{1})
	_, err = client.SubjectVersions(all, "items")
	refused("gone", err, 40401)
}

type value struct {
	ID   int64  `json:"id"`
	Note string `json:"note"`
}

func serde(ctx context.Context, client *sr.Client) *sr.Serde {
	registered := must(client.CreateSchema(ctx, "points-value", sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON}))
	var serde sr.Serde
	serde.Register(registered.ID, value{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	return &serde
}

func write(ctx context.Context, client *sr.Client) {
	fmt.Println(hex.EncodeToString(must(serde(ctx, client).Encode(value{7, "né"}))))
}

func read(ctx context.Context, client *sr.Client, data []byte) {
	var got value
	check(serde(ctx, client).Decode(data, &got))
	equal("read", got, value{8, "ours"})
}
