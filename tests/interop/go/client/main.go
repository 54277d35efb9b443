// Tries each feature with the official Go SDK, and prints what it observed.
//
// client REVISION SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server over Streamable HTTP.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	notes = "interop://notes"
	trace = "interop/trace"
)

type echoParams struct {
	mcp.ParamsBase
	Text string `json:"text"`
}

type echoResult struct {
	mcp.ResultBase
	Echo string `json:"echo"`
}

// What the server asks and says.
var (
	asked        []string
	logs         = make(chan []any, 100)
	changes      = make(chan string, 100)
	listChanges  = make(chan bool, 100)
	progress     = make(chan []any, 100)
	acknowledged = make(chan bool, 100)
)

func answer(_ context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	asked = append(asked, request.Params.Message)
	if request.Params.Mode == "url" {
		asked = append(asked, request.Params.URL)
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	if strings.Contains(request.Params.Message, "cellar") {
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
	answers := map[string]any{"nights": 2, "breakfast": true, "sure": true}
	schema, ok := request.Params.RequestedSchema.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("no schema: %v", request.Params.RequestedSchema)
	}
	content := map[string]any{}
	for name := range schema["properties"].(map[string]any) {
		content[name] = answers[name]
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

func sample(_ context.Context, request *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	said, ok := request.Params.Messages[0].Content.(*mcp.TextContent)
	if !ok {
		return nil, errors.New("the server did not ask with text")
	}
	asked = append(asked, said.Text)
	return &mcp.CreateMessageResult{Role: "assistant", Model: "interop-model", Content: &mcp.TextContent{Text: "It is short."}}, nil
}

func newClient() *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "visitor", Version: "1.0.0"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler:   answer,
		CreateMessageHandler: sample,
		LoggingMessageHandler: func(_ context.Context, request *mcp.LoggingMessageRequest) {
			logs <- []any{request.Params.Level, request.Params.Data}
		},
		ResourceUpdatedHandler: func(_ context.Context, request *mcp.ResourceUpdatedNotificationRequest) {
			changes <- request.Params.URI
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { listChanges <- true },
		ProgressNotificationHandler: func(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
			progress <- []any{request.Params.Progress, request.Params.Total, request.Params.Message}
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///inn"})
	// The SDK does not say when a subscription has begun.
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				acknowledged <- true
			}
			return next(ctx, method, request)
		}
	})
	if err := mcp.AddSendingCustomMethod[*echoParams, *echoResult](client, "interop/echo"); err != nil {
		log.Fatal(err)
	}
	return client
}

// visit is a session, and the time that one feature may take.
type visit struct {
	*mcp.ClientSession
	isModern bool
}

func (v visit) call(ctx context.Context, name string, arguments map[string]any) (string, error) {
	return said(v.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments}))
}

func said(result *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var texts []string
	for _, block := range result.Content {
		if text, ok := block.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	if result.IsError {
		return "error: " + strings.Join(texts, "\n"), nil
	}
	return strings.Join(texts, "\n"), nil
}

func (v visit) read(ctx context.Context, uri string) (string, error) {
	result, err := v.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	part := result.Contents[0]
	if part.Blob != nil {
		return base64.StdEncoding.EncodeToString(part.Blob), nil
	}
	return part.Text, nil
}

func (v visit) hasDrink(ctx context.Context) (bool, error) {
	found := false
	for tool, err := range v.Tools(ctx, nil) {
		if err != nil {
			return false, err
		}
		found = found || tool.Name == "drink"
	}
	return found, nil
}

// codeOf returns the code of a protocol error instead of a value.
func codeOf(value any, err error) (any, error) {
	var refused *jsonrpc.Error
	if errors.As(err, &refused) {
		return refused.Code, nil
	}
	return value, err
}

func receive[T any](ctx context.Context, from chan T) (T, error) {
	select {
	case item := <-from:
		return item, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func existing(ctx context.Context, path string) error {
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// newFolder returns where the server and this client leave files for each other.
func newFolder() (string, error) { return os.MkdirTemp(os.Getenv("HOME"), "hike-") }

type feature struct {
	name string
	try  func(visit, context.Context) (any, error)
}

var features = []feature{
	{"introduction", func(v visit, _ context.Context) (any, error) {
		result := v.InitializeResult()
		return []any{result.ServerInfo.Name, result.Instructions}, nil
	}},
	{"calls", func(v visit, ctx context.Context) (any, error) {
		return v.call(ctx, "greet", map[string]any{"name": "Åse"})
	}},
	{"tool_errors", func(v visit, ctx context.Context) (any, error) {
		return v.call(ctx, "refuse", map[string]any{"reason": "The inn is full."})
	}},
	{"protocol_errors", func(v visit, ctx context.Context) (any, error) { return codeOf(v.read(ctx, "interop://nowhere")) }},
	{"structured_content", func(v visit, ctx context.Context) (any, error) {
		result, err := v.CallTool(ctx, &mcp.CallToolParams{Name: "forecast", Arguments: map[string]any{"city": "Oslo", "days": 2}})
		if err != nil {
			return nil, err
		}
		return result.StructuredContent, nil
	}},
	{"metadata", func(v visit, ctx context.Context) (any, error) {
		result, err := v.CallTool(ctx, &mcp.CallToolParams{Name: "sign", Meta: mcp.Meta{trace: "Åse"}})
		if err != nil {
			return nil, err
		}
		return result.Meta[trace], nil
	}},
	{"resources", func(v visit, ctx context.Context) (any, error) {
		var uris []string
		for resource, err := range v.Resources(ctx, nil) {
			if err != nil {
				return nil, err
			}
			uris = append(uris, resource.URI)
		}
		slices.Sort(uris)
		text, err := v.read(ctx, notes)
		if err != nil {
			return nil, err
		}
		dot, err := v.read(ctx, "interop://dot")
		return []any{uris, text, dot}, err
	}},
	{"templates", func(v visit, ctx context.Context) (any, error) {
		var templates []string
		for template, err := range v.ResourceTemplates(ctx, nil) {
			if err != nil {
				return nil, err
			}
			templates = append(templates, template.URITemplate)
		}
		city, err := v.read(ctx, "interop://cities/Oslo")
		return []any{templates, city}, err
	}},
	{"prompts", func(v visit, ctx context.Context) (any, error) {
		plan, err := v.GetPrompt(ctx, &mcp.GetPromptParams{Name: "plan", Arguments: map[string]string{"city": "Oslo"}})
		if err != nil {
			return nil, err
		}
		var messages []any
		for _, message := range plan.Messages {
			messages = append(messages, []any{message.Role, message.Content.(*mcp.TextContent).Text})
		}
		return messages, nil
	}},
	{"pagination", func(v visit, ctx context.Context) (any, error) {
		var pages [][]string
		for cursor := ""; cursor != "" || pages == nil; {
			result, err := v.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
			if err != nil {
				return nil, err
			}
			var names []string
			for _, prompt := range result.Prompts {
				names = append(names, prompt.Name)
			}
			pages, cursor = append(pages, names), result.NextCursor
		}
		return pages, nil
	}},
	{"completion", func(v visit, ctx context.Context) (any, error) {
		var found [][]string
		for _, of := range []*mcp.CompleteReference{{Type: "ref/prompt", Name: "plan"}, {Type: "ref/resource", URI: "interop://cities/{city}"}} {
			result, err := v.Complete(ctx, &mcp.CompleteParams{Ref: of, Argument: mcp.CompleteParamsArgument{Name: "city", Value: "Os"}})
			if err != nil {
				return nil, err
			}
			found = append(found, result.Completion.Values)
		}
		return found, nil
	}},
	{"extension_methods", func(v visit, ctx context.Context) (any, error) {
		result, err := mcp.CallCustomMethod[*echoParams, *echoResult](ctx, v.ClientSession, "interop/echo", &echoParams{Text: "Åse"})
		if err != nil {
			return codeOf(nil, err)
		}
		return result.Echo, nil
	}},
	{"logs", func(v visit, ctx context.Context) (any, error) {
		params := &mcp.CallToolParams{Name: "announce", Arguments: map[string]any{"text": "Dinner is served."}}
		if v.isModern {
			params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
		} else if err := v.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			return nil, err
		}
		if _, err := v.CallTool(ctx, params); err != nil {
			return nil, err
		}
		return receive(ctx, logs)
	}},
	{"subscriptions", func(v visit, ctx context.Context) (any, error) {
		if err := v.Subscribe(ctx, &mcp.SubscribeParams{URI: notes}); err != nil {
			return nil, err
		}
		if v.isModern {
			if _, err := receive(ctx, acknowledged); err != nil {
				return nil, err
			}
		}
		if _, err := v.call(ctx, "rewrite", map[string]any{"text": "Bring a hat."}); err != nil {
			return nil, err
		}
		changed, err := receive(ctx, changes)
		if err != nil {
			return nil, err
		}
		text, err := v.read(ctx, notes)
		return []any{changed, text}, err
	}},
	{"list_changes", func(v visit, ctx context.Context) (any, error) {
		before, err := v.hasDrink(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := v.call(ctx, "open_bar", nil); err != nil {
			return nil, err
		}
		if _, err := receive(ctx, listChanges); err != nil {
			return nil, err
		}
		after, err := v.hasDrink(ctx)
		return []any{before, after}, err
	}},
	{"forms", func(v visit, ctx context.Context) (any, error) {
		asked = nil
		var booked []string
		for _, room := range []string{"the attic", "the cellar"} {
			text, err := v.call(ctx, "book", map[string]any{"room": room})
			if err != nil {
				return nil, err
			}
			booked = append(booked, text)
		}
		return []any{asked, booked}, nil
	}},
	{"urls", func(v visit, ctx context.Context) (any, error) {
		asked = nil
		text, err := v.call(ctx, "pay", nil)
		return []any{text, asked}, err
	}},
	{"sampling", func(v visit, ctx context.Context) (any, error) {
		asked = nil
		text, err := v.call(ctx, "summarize", map[string]any{"text": "a long text"})
		return []any{text, asked}, err
	}},
	{"roots", func(v visit, ctx context.Context) (any, error) { return v.call(ctx, "look_around", nil) }},
	{"cancellation", func(v visit, ctx context.Context) (any, error) {
		folder, err := newFolder()
		if err != nil {
			return nil, err
		}
		calling, giveUp := context.WithCancel(ctx)
		defer giveUp()
		go v.call(calling, "hike", map[string]any{"steps": 0, "folder": folder})
		if err := existing(ctx, filepath.Join(folder, "begun")); err != nil {
			return nil, err
		}
		giveUp()
		return "stopped", existing(ctx, filepath.Join(folder, "stopped"))
	}},
	{"progress", func(v visit, ctx context.Context) (any, error) {
		folder, err := newFolder()
		if err != nil {
			return nil, err
		}
		params := &mcp.CallToolParams{Name: "hike", Arguments: map[string]any{"steps": 3, "folder": folder}}
		params.SetProgressToken("hike-1")
		type outcome struct {
			text string
			err  error
		}
		done := make(chan outcome, 1)
		go func() {
			text, err := said(v.CallTool(ctx, params))
			done <- outcome{text, err}
		}()
		var steps []any
		for len(steps) < 3 {
			step, err := receive(ctx, progress)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		if err := os.WriteFile(filepath.Join(folder, "home"), nil, 0o600); err != nil {
			return nil, err
		}
		hiked, err := receive(ctx, done)
		if err != nil {
			return nil, err
		}
		return []any{steps, hiked.text}, hiked.err
	}},
}

func main() {
	revision, place := os.Args[1], os.Args[3:]
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil {
		log.Fatal(err)
	}
	within := time.Duration(seconds * float64(time.Second))
	command := exec.Command(place[0], place[1:]...)
	command.Stderr = os.Stderr
	var transport mcp.Transport = &mcp.CommandTransport{Command: command}
	if strings.HasPrefix(place[0], "http") {
		transport = &mcp.StreamableClientTransport{Endpoint: place[0]}
	}
	connecting, stop := context.WithTimeout(context.Background(), 2*within)
	defer stop()
	session, err := newClient().Connect(connecting, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		log.Fatalf("Error: %v", err)
	}
	if agreed := session.InitializeResult().ProtocolVersion; agreed != revision {
		log.Fatalf("Error: agreed on %s instead of %s", agreed, revision)
	}
	v := visit{session, revision >= "2026"}
	if v.isModern {
		// It listens for changes of lists from the beginning.
		if _, err := receive(connecting, acknowledged); err != nil {
			log.Printf("The subscription was not acknowledged: %v", err)
		}
	}
	observed := map[string]any{}
	for _, each := range features {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		seen, err := each.try(v, ctx)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			observed[each.name] = map[string]string{"failed": fmt.Sprintf("nothing came within %v s", seconds)}
		case err != nil:
			observed[each.name] = map[string]string{"failed": err.Error()}
		default:
			observed[each.name] = seen
		}
		cancel()
	}
	if err := json.NewEncoder(os.Stdout).Encode(observed); err != nil {
		log.Fatal(err)
	}
	if err := session.Close(); err != nil {
		log.Printf("Closing: %v", err)
	}
}
