// The page of a real run in a real browser: it looks at nothing but itself, fits, prints, and opens at once also when it is that of the
// whole catalogue. What was seen is in target/browser, for somebody to look at.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { start } from "./browser.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const chainbreak = process.env.CHAINBREAK ?? join(root, "target/debug/chainbreak");
const seen = process.env.SEEN ?? join(root, "target/browser");
// As many as the catalogue has, and a multiple of how many the run has.
const CASES = 312;
const folder = mkdtempSync(join(tmpdir(), "chainbreak-page-"));
const run = join(folder, "latest");
const page = join(run, "report.html");

let browser;
before(async () => {
  mkdirSync(seen, { recursive: true });
  // One of its cases is not as expected, which is what 10 says.
  const variants = ["calm", "fight-nobody-expects"].flatMap((it) => ["--variant", it]);
  program(10, "run", join(root, "harness/cli/tests/cli/ground/short.yaml"), ...variants, "--out", folder);
  browser = await start();
});
after(async () => {
  await browser?.end();
  rmSync(folder, { recursive: true, force: true });
});

function program(code, ...args) {
  try {
    execFileSync(chainbreak, args, { stdio: ["ignore", "pipe", "pipe"] });
    assert.equal(code, 0, "it says that all is well");
  } catch (error) {
    assert.equal(error.status, code, `${error.stderr}`);
  }
}

for (const scheme of ["light", "dark"]) {
  for (const width of [1280, 390]) {
    test(`it fits on a ${scheme} screen of ${width} pixels, and its console is empty`, async () => {
      await browser.open(page, { width, scheme });
      assert.deepEqual(browser.console(), []);
      assert.deepEqual(browser.requests(), [pathToFileURL(page).href]);
      assert.equal(await browser.value("document.documentElement.scrollWidth"), width);
      assert.ok(await browser.value("document.querySelectorAll('article.case').length > 1"), "there are cases");
      writeFileSync(join(seen, `${scheme}-${width}.png`), await browser.screenshot(true));
    });
  }
}

test("light and dark are told apart, and either can be read", async () => {
  const grounds = [];
  for (const scheme of ["light", "dark"]) {
    await browser.open(page, { scheme });
    const [ground, text] = await browser.value(
      "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]",
    );
    grounds.push(ground);
    assert.ok(contrast(ground, text) >= 7, `${text} on ${ground}`);
  }
  assert.notEqual(grounds[0], grounds[1]);
});

// https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
function contrast(...colours) {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/\d+/g).map((it) => it / 255);
    const linear = (it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const [low, high] = colours.map(luminance).sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

test("a link leads to the command that cut, which is unfolded", async () => {
  await browser.open(page);
  const link = "article.bad .promises a";
  const anchor = await browser.value(`document.querySelector("${link}").getAttribute("href")`);
  const shown = `document.querySelector("${anchor}").checkVisibility({ contentVisibilityAuto: true })`;
  assert.equal(await browser.value(shown), false, "it is folded at first");
  await browser.value(`document.querySelector("${link}").click()`);
  await browser.drawn();
  assert.equal(await browser.value(shown), true);
  writeFileSync(join(seen, "command.png"), await browser.screenshot());
});

test("what came out as expected can be left out, without a script", async () => {
  await browser.open(page);
  const shown = "[...document.querySelectorAll('article, tbody tr[class]')].filter((it) => it.checkVisibility()).map((it) => it.className)";
  assert.equal((await browser.value(shown)).filter((it) => it.includes("ok")).length, 2);
  await browser.value("document.querySelector('#only').click()");
  const left = await browser.value(shown);
  assert.ok(left.length >= 2 && left.every((it) => it.includes("bad")), `${left}`);
});

test("it is printed", async () => {
  await browser.open(page);
  const pdf = await browser.pdf();
  writeFileSync(join(seen, "printed.pdf"), pdf);
  assert.ok(pdf.length > 20_000, `${pdf.length} bytes`);
});

test("that of 312 cases is below 10 MB and opens in less than a second", async () => {
  const many = join(run, "many.jsonl");
  const recorded = readFileSync(join(run, "run.jsonl"), "utf8");
  const planned = recorded.split("\n").filter((line) => line.startsWith('{"planned"')).length;
  writeFileSync(many, times(recorded, CASES / planned));
  program(10, "report", "--html", many);
  assert.ok(statSync(page).size < 10e6, `${statSync(page).size} bytes`);
  const took = [];
  // Others may have the processor for a while.
  for (let time = 0; time < 3; time += 1) {
    await browser.open(page);
    took.push(await browser.value("performance.getEntriesByType('navigation')[0].loadEventEnd"));
  }
  assert.equal(await browser.value("document.querySelectorAll('article.case').length"), CASES);
  assert.ok(Math.min(...took) < 1_000, `opened after ${took} ms`);
});

// The run with each of its cases so often, under other names.
function times(lines, n) {
  const [head, ...rest] = lines.trimEnd().split("\n").map((line) => JSON.parse(line));
  const again = (line, copy) => {
    const [[kind, it]] = Object.entries(line);
    if (kind === "planned") return { planned: { ...it, variant: `${it.variant}-${copy}` } };
    if (it.case) return { [kind]: { ...it, case: `${it.case}-${copy}` } };
    return copy === 0 ? line : undefined;
  };
  const copies = Array.from({ length: n }, (_, copy) => rest.map((line) => again(line, copy)).filter(Boolean));
  return [head, ...copies.flat()].map((line) => JSON.stringify(line)).join("\n") + "\n";
}
