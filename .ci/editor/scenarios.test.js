// Every shipped scenario is good in an editor, and a mistake in any of them is underlined.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { start } from "./server.js";

const root = fileURLToPath(new URL("../../scenarios", import.meta.url));
const files = readdirSync(root, { recursive: true })
  .filter((name) => name.endsWith(".yaml"))
  .map((name) => `${root}/${name}`)
  .filter((file) => readFileSync(file, "utf8").startsWith("# yaml-language-server:"))
  .sort();
const flagship = `${root}/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml`;
const mistakes = [
  [/^timeline:/m, "timelime:"],
  [/^promises:/m, "promises: 3\nother:"],
  [/^ {2}- settle: /m, "  - setle: "],
  [/every: \d+ms/, "every: often"],
];

let server;
before(async () => {
  server = await start(root);
});
after(() => server.end());

test("there are scenarios", () => assert.ok(files.length > 20, `${files.length}`));

for (const file of files) {
  test(`${file.slice(root.length + 1)} is good, and its mistakes are underlined`, async () => {
    assert.deepEqual(await server.diagnostics(file), []);
    const text = readFileSync(file, "utf8");
    const bad = mistakes.map(([right, wrong]) => text.replace(right, wrong)).filter((it) => it !== text);
    assert.ok(bad.length >= 2, "there is something to spoil");
    for (const [number, text] of bad.entries()) {
      assert.notDeepEqual(await server.diagnostics(file, text), [], `mistake ${number}`);
    }
  });
}

test("what a field means is shown over it", async () => {
  assert.match(await server.hover(flagship, "min-sync-period:"), /iptables-min-sync-period/);
  assert.match(await server.hover(flagship, "longest-gap:"), /Longest allowed stretch/);
  assert.match(await server.hover(flagship, "churn:"), /Scale a Deployment/);
});
