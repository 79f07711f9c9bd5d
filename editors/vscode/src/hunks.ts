/** Leaving single hunks out of what is approved: in a list, at the hunk itself, and as marks where one was left out. */

import * as vscode from "vscode";
import type { Approvals, Waiting } from "./approvals";
import { approvalOf, type Proposals, SCHEME } from "./proposals";
import type { PlacedHunk } from "./wire";
import { counted, inLabel, tell } from "./words";

const TOGGLE = "devtools.toggleHunk";
const SELECTOR: vscode.DocumentSelector = { scheme: SCHEME };

function titleOf(hunk: PlacedHunk): string {
  return hunk.dropped ? "Take This Hunk Again" : "Leave This Hunk Out";
}

function countsOf(hunk: PlacedHunk): string {
  return `+${hunk.added} -${hunk.removed}`;
}

function lineOf(hunk: PlacedHunk, document: vscode.TextDocument): number {
  return Math.max(0, Math.min(hunk.start - 1, document.lineCount - 1));
}

export class Hunks implements vscode.CodeLensProvider, vscode.CodeActionProvider, vscode.Disposable {
  private readonly mark = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.warningForeground"),
    overviewRulerLane: vscode.OverviewRulerLane.Right,
    after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), margin: "0 0 0 2em", fontStyle: "italic" },
  });
  private readonly subscriptions: vscode.Disposable[];
  readonly onDidChangeCodeLenses: vscode.Event<void>;

  constructor(
    private readonly approvals: Approvals,
    private readonly proposals: Proposals,
  ) {
    this.onDidChangeCodeLenses = proposals.onDidChangeHunks;
    this.subscriptions = [
      this.mark,
      vscode.languages.registerCodeLensProvider(SELECTOR, this),
      vscode.languages.registerCodeActionsProvider(SELECTOR, this, {
        providedCodeActionKinds: [vscode.CodeActionKind.QuickFix],
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => this.redraw()),
      vscode.workspace.onDidChangeTextDocument((event) => {
        if (event.document.uri.scheme === SCHEME) {
          this.redraw();
        }
      }),
      proposals.onDidChangeHunks(() => this.redraw()),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const id = approvalOf(document.uri);
    return this.proposals.hunksIn(document.uri).map((hunk) => {
      const line = lineOf(hunk, document);
      return new vscode.CodeLens(new vscode.Range(line, 0, line, 0), {
        title: titleOf(hunk),
        command: TOGGLE,
        arguments: [{ id, hunk: hunk.id }],
      });
    });
  }

  provideCodeActions(document: vscode.TextDocument, range: vscode.Range): vscode.CodeAction[] {
    const id = approvalOf(document.uri);
    const hunk = this.hunkAt(document, range.start.line);
    if (id === undefined || hunk === undefined) {
      return [];
    }
    const offered: [string, string, object][] = [
      [`${titleOf(hunk)} (${countsOf(hunk)})`, TOGGLE, { id, hunk: hunk.id }],
      ["Approve What Is Shown", "devtools.approve", { id }],
      ["Deny", "devtools.deny", { id }],
    ];
    return offered.map(([title, command, argument]) => {
      const action = new vscode.CodeAction(title, vscode.CodeActionKind.QuickFix);
      action.command = { title, command, arguments: [argument] };
      return action;
    });
  }

  /** Leave a hunk out, or take it again: the one that is named, else the one at the cursor. */
  async toggle(given?: { readonly id: string; readonly hunk: string }): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const here = editor === undefined ? undefined : this.hunkAt(editor.document, editor.selection.active.line);
    const id = given?.id ?? approvalOf(editor?.document.uri);
    const hunk = given?.hunk ?? here?.id;
    if (id === undefined || hunk === undefined) {
      void tell("info", "No hunk is here: put the cursor on one, at the right side of an agent's diff.");
      return;
    }
    const dropped = new Set(this.proposals.dropped(id));
    if (!dropped.delete(hunk)) {
      dropped.add(hunk);
    }
    await this.approvals.leaveOut(id, dropped);
  }

  /** Choose in a list which hunks are written; the one that is looked at is shown in its diff. */
  async choose(id: string): Promise<void> {
    const item = this.approvals.find(id);
    if (item === undefined) {
      return;
    }
    const items = await this.itemsOf(item);
    if (items.length === 0) {
      void tell("info", "There is nothing to choose from: it names no hunks.");
      return;
    }
    const picked = await vscode.window.showQuickPick(items, {
      canPickMany: true,
      matchOnDescription: true,
      matchOnDetail: true,
      title: inLabel(item.headline),
      placeHolder: `${counted(items.length, "hunk")}: what is not checked is not written`,
      onDidSelectItem: (one) => this.reveal(id, items.find((item) => item === one)),
    });
    if (picked !== undefined) {
      const kept = new Set(picked.map((one) => one.hunk));
      await this.approvals.leaveOut(id, new Set(items.map((one) => one.hunk).filter((hunk) => !kept.has(hunk))));
    }
  }

  private async itemsOf(item: Waiting): Promise<(vscode.QuickPickItem & { readonly hunk: string })[]> {
    const dropped = this.proposals.dropped(item.payload.id);
    const { files } = await this.approvals.places(item);
    return files.flatMap((file) =>
      file.hunks.map((hunk) => ({
        label: inLabel(`${file.path}:${hunk.start}`),
        description: countsOf(hunk),
        detail: inLabel(hunk.summary),
        picked: !dropped.has(hunk.id),
        hunk: hunk.id,
      })),
    );
  }

  private hunkAt(document: vscode.TextDocument, line: number): PlacedHunk | undefined {
    return this.proposals
      .hunksIn(document.uri)
      .find((hunk) => line >= lineOf(hunk, document) && line <= lineOf(hunk, document) + Math.max(0, hunk.lines - 1));
  }

  private reveal(id: string, item: { readonly hunk: string } | undefined): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const { document } = editor;
      const found = this.proposals.hunksIn(document.uri).find((one) => one.id === item?.hunk);
      if (approvalOf(document.uri) === id && found !== undefined) {
        const line = lineOf(found, document);
        editor.revealRange(new vscode.Range(line, 0, line, 0), vscode.TextEditorRevealType.InCenter);
      }
    }
  }

  private redraw(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      if (editor.document.uri.scheme !== SCHEME) {
        continue;
      }
      const options = this.proposals
        .hunksIn(editor.document.uri)
        .filter((hunk) => hunk.dropped)
        .map((hunk) => {
          const line = lineOf(hunk, editor.document);
          return {
            range: new vscode.Range(line, 0, line, 0),
            hoverMessage: new vscode.MarkdownString().appendText(`Left out: ${countsOf(hunk)}\n${hunk.summary}`),
            renderOptions: { after: { contentText: `left out: ${countsOf(hunk)}` } },
          };
        });
      editor.setDecorations(this.mark, options);
    }
  }
}
