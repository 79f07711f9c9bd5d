/**
 * The texts of waiting approvals as documents: `devtools-approval:/ID/before/PATH`, `…/after/PATH`, `…/text/…`.
 *
 * The text after the change can be edited, so that a person may approve something else than what was proposed: what
 * is in the document when they approve is what is written. Hunks that they leave out are gone from it.
 */

import * as vscode from "vscode";
import type { DiffDocument, FileTexts, PlacedHunk } from "./wire";

export const SCHEME = "devtools-approval";

export type Side = "before" | "after" | "text";

interface Entry {
  content: Uint8Array;
  /** The text that the daemon gave, where it may be edited. */
  given: string | undefined;
  readonly path: string;
  modified: number;
  hunks: readonly PlacedHunk[];
}

export function proposalUri(id: string, side: Side, path = ""): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: `/${id}/${side}/${path}` });
}

/** The approval that a document belongs to. */
export function approvalOf(uri: vscode.Uri | undefined): string | undefined {
  return uri?.scheme === SCHEME ? uri.path.split("/")[1] : undefined;
}

function documentOf(path: string): vscode.TextDocument | undefined {
  return vscode.workspace.textDocuments.find((one) => one.uri.scheme === SCHEME && one.uri.path === path);
}

export class Proposals implements vscode.FileSystemProvider, vscode.Disposable {
  private readonly entries = new Map<string, Entry>();
  private readonly leftOut = new Map<string, Set<string>>();
  private readonly changes = new vscode.EventEmitter<vscode.FileChangeEvent[]>();
  private readonly hunkChanges = new vscode.EventEmitter<void>();
  readonly onDidChangeFile = this.changes.event;
  /** Which hunks there are, where, and which of them are left out. */
  readonly onDidChangeHunks = this.hunkChanges.event;

  dispose(): void {
    this.changes.dispose();
    this.hunkChanges.dispose();
  }

  /** Take the texts of an approval; what a person has edited already stays. */
  async put(document: DiffDocument): Promise<void> {
    for (const file of document.files) {
      const before = proposalUri(document.id, "before", file.path);
      if (!this.entries.has(before.path)) {
        this.set(before, file.before ?? "", undefined, file);
      }
      await this.putAfter(proposalUri(document.id, "after", file.path), file);
    }
    this.hunkChanges.fire();
  }

  private async putAfter(uri: vscode.Uri, file: FileTexts): Promise<void> {
    const text = file.after ?? "";
    const entry = this.entries.get(uri.path);
    const open = documentOf(uri.path);
    if (entry === undefined || open === undefined || entry.given === undefined) {
      if (entry === undefined || !this.isEdited(uri.path)) {
        this.set(uri, text, file.kind === "deleted" ? undefined : text, file);
      }
    } else if (!this.isEdited(uri.path)) {
      // An open document would read a changed file again only after a second: its text is changed in the editor.
      entry.given = text;
      entry.hunks = file.hunks;
      if (open.getText() !== text) {
        const change = new vscode.WorkspaceEdit();
        change.replace(uri, new vscode.Range(0, 0, open.lineCount, 0), text);
        await vscode.workspace.applyEdit(change);
        await open.save();
      }
    }
  }

  putText(id: string, text: string): vscode.Uri {
    const uri = proposalUri(id, "text", `${id}.diff`);
    this.set(uri, text, undefined, { path: "", hunks: [] });
    return uri;
  }

  hasText(id: string): boolean {
    return this.entries.has(proposalUri(id, "text", `${id}.diff`).path);
  }

  /** The hunks that a document shows, in order; none for the text before the change. */
  hunksIn(uri: vscode.Uri): readonly PlacedHunk[] {
    const entry = uri.scheme === SCHEME ? this.entries.get(uri.path) : undefined;
    return entry === undefined || uri.path.split("/")[2] !== "after" ? [] : entry.hunks;
  }

  /** Whether a person has changed the text itself, saved or not. */
  isEdited(path: string): boolean {
    const entry = this.entries.get(path);
    return entry?.given !== undefined && this.contentOf(path, entry) !== entry.given;
  }

  /** Save what is open of an approval, so that its documents take a new text. */
  async settle(id: string): Promise<void> {
    for (const document of vscode.workspace.textDocuments) {
      if (approvalOf(document.uri) === id && document.isDirty) {
        await document.save();
      }
    }
  }

  /** The hunks that are left out, by id. */
  dropped(id: string): ReadonlySet<string> {
    return this.leftOut.get(id) ?? new Set();
  }

  setDropped(id: string, hunks: Iterable<string>): void {
    this.leftOut.set(id, new Set(hunks));
  }

  /** The files whose proposed text a person has changed, with the text that they want, saved or not. */
  edited(id: string): { path: string; content: string }[] {
    return this.entriesOf(id)
      .filter(([path]) => this.isEdited(path))
      .map(([path, entry]) => ({ path: entry.path, content: this.contentOf(path, entry) }));
  }

  /** The hunks that an answer leaves out; a text that was edited says itself what is in it. */
  dropIn(id: string): string[] {
    const spoken = new Set(
      this.entriesOf(id)
        .filter(([path]) => this.isEdited(path))
        .flatMap(([, entry]) => entry.hunks.map((hunk) => hunk.id)),
    );
    return [...this.dropped(id)].filter((hunk) => !spoken.has(hunk));
  }

  /** The approval has ended: close what shows it, and forget its texts. */
  async forget(id: string): Promise<void> {
    this.leftOut.delete(id);
    if (this.entriesOf(id).length === 0) {
      return;
    }
    const tabs = vscode.window.tabGroups.all
      .flatMap((group) => group.tabs)
      .filter((tab) => urisOf(tab).some((uri) => approvalOf(uri) === id));
    // A tab whose text was edited would ask whether to save what is decided already.
    await this.settle(id);
    if (tabs.length > 0) {
      await vscode.window.tabGroups.close(tabs, true);
    }
    for (const [path] of this.entriesOf(id)) {
      this.entries.delete(path);
    }
    this.hunkChanges.fire();
  }

  private entriesOf(id: string): [string, Entry][] {
    return [...this.entries].filter(([path]) => path.startsWith(`/${id}/`));
  }

  private contentOf(path: string, entry: Entry): string {
    const open = documentOf(path);
    // A document without unsaved changes may still show what was here before: it reads again a moment later.
    return open?.isDirty === true
      ? open.getText().replaceAll("\r\n", "\n")
      : new TextDecoder("utf-8", { ignoreBOM: true }).decode(entry.content);
  }

  private set(uri: vscode.Uri, text: string, given: string | undefined, file: Pick<FileTexts, "path" | "hunks">): void {
    const known = this.entries.get(uri.path);
    const content = new TextEncoder().encode(text);
    const modified = Math.max(Date.now(), (known?.modified ?? 0) + 1);
    this.entries.set(uri.path, { content, given, path: file.path, modified, hunks: file.hunks });
    const type = known === undefined ? vscode.FileChangeType.Created : vscode.FileChangeType.Changed;
    this.changes.fire([{ type, uri }]);
  }

  // -- vscode.FileSystemProvider --------------------------------------------------------------------------------

  watch(): vscode.Disposable {
    return new vscode.Disposable(() => undefined);
  }

  stat(uri: vscode.Uri): vscode.FileStat {
    const entry = this.find(uri);
    return {
      type: vscode.FileType.File,
      ctime: 0,
      mtime: entry.modified,
      size: entry.content.byteLength,
      ...(entry.given === undefined ? { permissions: vscode.FilePermission.Readonly } : {}),
    };
  }

  readFile(uri: vscode.Uri): Uint8Array {
    return this.find(uri).content;
  }

  writeFile(uri: vscode.Uri, content: Uint8Array): void {
    const entry = this.find(uri);
    if (entry.given === undefined) {
      throw vscode.FileSystemError.NoPermissions(uri);
    }
    entry.content = content;
    entry.modified = Math.max(Date.now(), entry.modified + 1);
    this.changes.fire([{ type: vscode.FileChangeType.Changed, uri }]);
  }

  readDirectory(): [string, vscode.FileType][] {
    return [];
  }

  createDirectory(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  delete(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  rename(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  private find(uri: vscode.Uri): Entry {
    const entry = this.entries.get(uri.path);
    if (entry === undefined) {
      throw vscode.FileSystemError.FileNotFound(uri);
    }
    return entry;
  }
}

function urisOf(tab: vscode.Tab): vscode.Uri[] {
  if (tab.input instanceof vscode.TabInputText) {
    return [tab.input.uri];
  }
  return tab.input instanceof vscode.TabInputTextDiff ? [tab.input.modified, tab.input.original] : [];
}

/** Show one file's change side by side. */
export async function showFile(document: DiffDocument, file: FileTexts, preserveFocus = false): Promise<void> {
  const moved = file.from === undefined ? file.path : `${file.from} → ${file.path}`;
  await vscode.commands.executeCommand(
    "vscode.diff",
    proposalUri(document.id, "before", file.path),
    proposalUri(document.id, "after", file.path),
    `${moved}: ${document.headline}`,
    { preview: false, preserveFocus } satisfies vscode.TextDocumentShowOptions,
  );
}
