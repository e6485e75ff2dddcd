// Prints the fields of Kubernetes' built-in types, as harness/apiserver/src/schema/types.txt has them: what their
// Go structs say of protobuf and JSON.
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// Of which kind a field is that is no struct of its own in protobuf's or JSON's eyes.
var leaves = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):          "time",
	reflect.TypeOf(metav1.MicroTime{}):     "microtime",
	reflect.TypeOf(metav1.Duration{}):      "duration",
	reflect.TypeOf(metav1.FieldsV1{}):      "raw",
	reflect.TypeOf(runtime.RawExtension{}): "raw",
	reflect.TypeOf(resource.Quantity{}):    "quantity",
	reflect.TypeOf(intstr.IntOrString{}):   "intstr",
}

func name(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	return strings.Join(path[len(path)-2:], "/") + "." + t.Name()
}

func shape(t reflect.Type, seen map[string]reflect.Type) string {
	if leaf, ok := leaves[t]; ok {
		return leaf
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem(), seen)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + shape(t.Elem(), seen)
	case reflect.Map:
		return "{}" + shape(t.Elem(), seen)
	case reflect.Struct:
		visit(t, seen)
		return name(t)
	case reflect.Int32, reflect.Int64, reflect.String, reflect.Bool:
		return t.Kind().String()
	}
	panic("no shape for " + t.String())
}

func visit(t reflect.Type, seen map[string]reflect.Type) {
	if _, ok := seen[name(t)]; ok {
		return
	}
	seen[name(t)] = t
	for i := range t.NumField() {
		if field := t.Field(i); field.Tag.Get("protobuf") != "" {
			shape(field.Type, seen)
		}
	}
}

func tell(t reflect.Type) {
	fmt.Println(name(t))
	for i := range t.NumField() {
		field := t.Field(i)
		proto := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(proto) < 2 {
			continue
		}
		json := strings.Split(field.Tag.Get("json"), ",")
		label := json[0]
		if label == "" {
			label = "-"
		}
		kept := ""
		if field.Type.Kind() == reflect.Pointer && label != "-" {
			kept = "*"
		}
		patch := ""
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			patch = " " + strategy + ":" + field.Tag.Get("patchMergeKey")
		}
		typed := shape(field.Type, map[string]reflect.Type{})
		fmt.Printf(" %s %s %s%s%s\n", proto[1], label, kept, typed, patch)
	}
}

// Reads the kinds that are served (built-in.txt) from the file that is named, and adds what is only sent.
func main() {
	table, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	lines := string(table) + `
v1 Binding
v1 DeleteOptions
policy/v1 Eviction
autoscaling/v1 Scale`
	seen := map[string]reflect.Type{}
	roots := []string{}
	for _, line := range strings.Split(lines, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		gv, err := schema.ParseGroupVersion(words[0])
		if err != nil {
			panic(err)
		}
		object, err := scheme.Scheme.New(gv.WithKind(words[1]))
		if err != nil {
			continue // Calico's, and definitions: clients send these as JSON.
		}
		t := reflect.TypeOf(object).Elem()
		visit(t, seen)
		roots = append(roots, fmt.Sprintf("= %s %s %s", words[0], words[1], name(t)))
	}
	fmt.Println("# Made by .ci/kubectl/types of k8s.io/api; see there. `*`: null and empty are two things.")
	for _, root := range roots {
		fmt.Println(root)
	}
	names := []string{}
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		tell(seen[name])
	}
}
