// A language server for YAML as editors start it, asked as they ask it.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import rpc from "vscode-jsonrpc/node.js";

const require = createRequire(import.meta.url);
// What an editor's settings say by default; other schemas than a file's own are not asked for.
const SETTINGS = { validate: true, hover: true, completion: true, schemaStore: { enable: false } };

export async function start(root) {
  const manifest = require.resolve("yaml-language-server/package.json");
  const program = join(dirname(manifest), "bin", "yaml-language-server");
  const child = spawn(process.execPath, [program, "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
  const connection = rpc.createMessageConnection(
    new rpc.StreamMessageReader(child.stdout),
    new rpc.StreamMessageWriter(child.stdin),
  );
  const waiting = new Map();
  connection.onRequest("workspace/configuration", ({ items }) =>
    items.map(({ section }) => (section === "yaml" ? SETTINGS : {})),
  );
  connection.onRequest("client/registerCapability", () => null);
  connection.onNotification("textDocument/publishDiagnostics", ({ uri, diagnostics }) => {
    waiting.get(uri)?.(diagnostics);
    waiting.delete(uri);
  });
  connection.listen();
  const uri = pathToFileURL(root).href;
  await connection.sendRequest("initialize", {
    processId: process.pid,
    rootUri: uri,
    workspaceFolders: [{ uri, name: "scenarios" }],
    capabilities: {
      textDocument: { publishDiagnostics: {}, hover: { contentFormat: ["markdown"] } },
      workspace: { configuration: true, workspaceFolders: true },
    },
  });
  await connection.sendNotification("initialized", {});
  let version = 0;

  return {
    // What it has against a file, as if that had this text.
    async diagnostics(file, text = readFileSync(file, "utf8")) {
      version += 1;
      // A name of its own beside the file: when one is closed, the server says that it has nothing against it any more.
      const uri = pathToFileURL(file.replace(/\.yaml$/, `.${version}.yaml`)).href;
      const said = new Promise((resolve) => waiting.set(uri, resolve));
      const textDocument = { uri, languageId: "yaml", version, text };
      await connection.sendNotification("textDocument/didOpen", { textDocument });
      const diagnostics = await said;
      await connection.sendNotification("textDocument/didClose", { textDocument: { uri } });
      return diagnostics.map(({ message, range }) => `${range.start.line + 1}: ${message}`);
    },

    // What it shows over the first place of a word.
    async hover(file, word) {
      const text = readFileSync(file, "utf8");
      const uri = pathToFileURL(file).href;
      version += 1;
      const textDocument = { uri, languageId: "yaml", version, text };
      await connection.sendNotification("textDocument/didOpen", { textDocument });
      const before = text.slice(0, text.indexOf(word)).split("\n");
      const position = { line: before.length - 1, character: before.at(-1).length + 1 };
      const shown = await connection.sendRequest("textDocument/hover", { textDocument: { uri }, position });
      await connection.sendNotification("textDocument/didClose", { textDocument: { uri } });
      return JSON.stringify(shown?.contents ?? "");
    },

    async end() {
      await connection.sendRequest("shutdown");
      await connection.sendNotification("exit");
      connection.dispose();
    },
  };
}
