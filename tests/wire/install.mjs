// install.mjs FOLDER: puts the official clients, as package-lock.json pins them, into FOLDER/node_modules. Where that is
// not possible, FOLDER/skipped says why (under CI, a failed installation is a failure).
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2];
const inputs = ["package.json", "package-lock.json", ".npmrc"];
const stamp = createHash("sha256").update(inputs.map((name) => readFileSync(path.join(here, name))).join("\0")).digest("hex");
const stampFile = path.join(folder, "stamp");
const skippedFile = path.join(folder, "skipped");

mkdirSync(folder, { recursive: true });
if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp && existsSync(path.join(folder, "node_modules"))) process.exit(0);
rmSync(stampFile, { force: true });
rmSync(skippedFile, { force: true });
for (const name of inputs) copyFileSync(path.join(here, name), path.join(folder, name));

// The npm that tests bring into guests, or the machine's own.
const brought = path.join(process.env.ANCHORHOLD_TEST_PROGRAMS ?? "", "usr/lib/node_modules/npm/bin/npm-cli.js");
const [program, ...first] = existsSync(brought) ? [process.execPath, brought] : ["npm"];
const npm = spawnSync(program, [...first, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], { cwd: folder, encoding: "utf8" });
if (npm.error?.code === "ENOENT") {
  console.log("SKIPPED: there is no npm");
  writeFileSync(skippedFile, "there is no npm; tools/test brings one");
} else if (npm.status !== 0) {
  console.log(npm.stderr);
  if (process.env.CI) process.exit(1);
  writeFileSync(skippedFile, "npm could not install them: " + npm.stderr.trim().split("\n")[0]);
} else {
  writeFileSync(stampFile, stamp);
}
