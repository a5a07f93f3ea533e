// container-specs compose FILE, or container-specs config|manifest|index FILE: exits with 1, and the reasons on stderr,
// if the compose library or the schemas of OCI's image specification refuse the file.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/opencontainers/image-spec/schema"
)

func main() {
	if err := check(os.Args[1], os.Args[2]); err != nil {
		for reason := err; reason != nil; reason = errors.Unwrap(reason) {
			fmt.Fprintln(os.Stderr, reason)
		}
		os.Exit(1)
	}
}

func check(kind, path string) error {
	if kind == "compose" {
		options, err := cli.NewProjectOptions([]string{path})
		if err != nil {
			return err
		}
		_, err = options.LoadProject(context.Background())
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return schema.Validator("application/vnd.oci.image." + kind + ".v1+json").Validate(file)
}
