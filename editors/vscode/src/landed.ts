/** What agents wrote: lines that are shown for a while, the recent plans, and follow mode. */

import * as fs from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import type { Connection } from "./connection";
import type { ActivityEntry, Landed, LandedFile, Status } from "./wire";

const KEPT_PLANS = 50;

export interface Plan {
  readonly connection: Connection;
  readonly id: string;
  readonly agent: string;
  readonly at: Date;
  readonly files: Map<string, LandedFile>;
}

interface Shown {
  readonly agent: string;
  ranges: vscode.Range[];
  fading: boolean;
  timers: NodeJS.Timeout[];
}

function decoration(color: string, ruler: boolean): vscode.TextEditorDecorationType {
  const background = new vscode.ThemeColor(color);
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: background,
    ...(ruler ? { overviewRulerColor: background, overviewRulerLane: vscode.OverviewRulerLane.Left } : {}),
  });
}

export class LandedLines implements vscode.Disposable {
  private readonly bright = decoration("devtools.landedBackground", true);
  private readonly fading = decoration("devtools.landedFadingBackground", false);
  private readonly shown = new Map<string, Shown>();
  private readonly recent: Plan[] = [];
  private readonly changes = new vscode.EventEmitter<void>();
  private readonly subscriptions: vscode.Disposable[];
  readonly onDidChange = this.changes.event;

  constructor() {
    this.subscriptions = [
      this.bright,
      this.fading,
      this.changes,
      vscode.window.onDidChangeVisibleTextEditors(() => this.redraw()),
      vscode.workspace.onDidChangeTextDocument((event) => this.moved(event)),
    ];
  }

  dispose(): void {
    for (const shown of this.shown.values()) {
      shown.timers.forEach((timer) => clearTimeout(timer));
    }
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  /** The latest plans that wrote something, newest first. */
  plans(): readonly Plan[] {
    return this.recent;
  }

  /** What is highlighted in a file now, for whoever asks: 0-based ranges, and whether they fade. */
  rangesIn(uri: vscode.Uri): { ranges: readonly vscode.Range[]; fading: boolean } | undefined {
    return this.shown.get(uri.toString());
  }

  listen(connection: Connection, client: LanguageClient): void {
    client.onNotification("devtools/landed", (landed: Landed) => this.take(connection, landed));
  }

  /** What landed before this editor was there, from the daemon's activity log. */
  async recall(connection: Connection): Promise<void> {
    const { stateDir } = await connection.request<Status>("devtools/status");
    const text = await fs.promises.readFile(path.join(stateDir, "activity.jsonl"), "utf8").catch(() => "");
    for (const line of text.split("\n")) {
      const entry = parsed(line);
      if (entry?.event === "landed" && entry.paths !== undefined) {
        const plan = this.planOf(connection, entry.plan, entry.agent ?? "", new Date(entry.time));
        for (const name of entry.paths) {
          if (!plan.files.has(name)) {
            plan.files.set(name, { path: name, ranges: [] });
          }
        }
      }
    }
    this.recent.sort((one, other) => other.at.getTime() - one.at.getTime());
    this.recent.length = Math.min(this.recent.length, KEPT_PLANS);
    this.changes.fire();
  }

  private planOf(connection: Connection, id: string, agent: string, at: Date): Plan {
    let plan = this.recent.find((one) => one.connection === connection && one.id === id);
    if (plan === undefined) {
      plan = { connection, id, agent, at, files: new Map() };
      this.recent.unshift(plan);
    }
    return plan;
  }

  private take(connection: Connection, landed: Landed): void {
    const plan = this.planOf(connection, landed.plan, landed.agent, new Date());
    this.recent.length = Math.min(this.recent.length, KEPT_PLANS);
    for (const file of landed.files) {
      plan.files.set(file.path, file);
      if (file.kind !== "deleted") {
        this.highlight(fileUri(connection, file), landed.agent, toRanges(file));
      }
    }
    this.changes.fire();
    const first = landed.files.find((file) => file.kind !== "deleted");
    if (first !== undefined && vscode.workspace.getConfiguration("devtools").get<boolean>("follow", false)) {
      void openFile(connection, first, true);
    }
  }

  private highlight(uri: vscode.Uri, agent: string, ranges: vscode.Range[]): void {
    const key = uri.toString();
    this.shown.get(key)?.timers.forEach((timer) => clearTimeout(timer));
    const settings = vscode.workspace.getConfiguration("devtools.landed");
    const brightMs = settings.get<number>("brightSeconds", 8) * 1_000;
    const fadingMs = settings.get<number>("fadingSeconds", 4) * 1_000;
    const shown: Shown = { agent, ranges, fading: false, timers: [] };
    shown.timers = [
      setTimeout(() => {
        shown.fading = true;
        this.redraw();
      }, brightMs),
      setTimeout(() => {
        this.shown.delete(key);
        this.redraw();
      }, brightMs + fadingMs),
    ];
    this.shown.set(key, shown);
    this.redraw();
  }

  /** A clean document that changed was read again from the disk: the lines are those that were announced. */
  private moved(event: vscode.TextDocumentChangeEvent): void {
    const shown = this.shown.get(event.document.uri.toString());
    if (shown === undefined || event.contentChanges.length === 0) {
      return;
    }
    if (event.document.isDirty) {
      for (const change of event.contentChanges) {
        const by = change.text.split("\n").length - 1 - (change.range.end.line - change.range.start.line);
        shown.ranges = shown.ranges.map((range) =>
          range.start.line > change.range.start.line
            ? new vscode.Range(range.start.translate(by), range.end.translate(by))
            : range,
        );
      }
    }
    this.redraw();
  }

  private redraw(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const shown = this.shown.get(editor.document.uri.toString());
      const last = editor.document.lineCount - 1;
      const options = (shown?.ranges ?? [])
        .filter((range) => range.start.line <= last)
        .map((range, index) => ({
          range,
          hoverMessage: new vscode.MarkdownString().appendText(`Written by ${shown?.agent ?? ""}`),
          ...(index === 0
            ? {
                renderOptions: {
                  after: {
                    contentText: shown?.agent ?? "",
                    margin: "0 0 0 2em",
                    color: new vscode.ThemeColor("editorCodeLens.foreground"),
                  },
                },
              }
            : {}),
        }));
      editor.setDecorations(this.bright, shown !== undefined && !shown.fading ? options : []);
      editor.setDecorations(this.fading, shown?.fading === true ? options : []);
    }
  }
}

function parsed(line: string): ActivityEntry | undefined {
  try {
    return JSON.parse(line) as ActivityEntry;
  } catch {
    // The last line may be half written.
    return undefined;
  }
}

export function fileUri(connection: Connection, file: LandedFile): vscode.Uri {
  return vscode.Uri.file(path.join(connection.root, file.path));
}

function toRanges(file: LandedFile): vscode.Range[] {
  return file.ranges.map(({ start, end }) => new vscode.Range(start - 1, 0, end - 1, Number.MAX_SAFE_INTEGER));
}

/** Show a file that landed, at its first lines. */
export async function openFile(connection: Connection, file: LandedFile, preserveFocus: boolean): Promise<void> {
  const range = toRanges(file)[0] ?? new vscode.Range(0, 0, 0, 0);
  const editor = await vscode.window.showTextDocument(fileUri(connection, file), { preview: true, preserveFocus });
  editor.revealRange(range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  if (!preserveFocus) {
    editor.selection = new vscode.Selection(range.start, range.start);
  }
}
