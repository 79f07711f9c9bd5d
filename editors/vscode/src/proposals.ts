/**
 * The texts of waiting approvals as documents: `devtools-approval:/ID/before/PATH`, `…/after/PATH`, `…/text`.
 *
 * The text after the change can be edited, so that a person may approve something else than what was proposed: what
 * is in the document when they approve is what is written.
 */

import * as vscode from "vscode";
import type { DiffDocument, FileTexts } from "./wire";

export const SCHEME = "devtools-approval";

export type Side = "before" | "after" | "text";

interface Entry {
  content: Uint8Array;
  /** The proposed text, where it may be edited. */
  readonly proposed: string | undefined;
  readonly path: string;
  modified: number;
}

export function proposalUri(id: string, side: Side, path = ""): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: `/${id}/${side}/${path}` });
}

/** The approval that a document belongs to. */
export function approvalOf(uri: vscode.Uri | undefined): string | undefined {
  return uri?.scheme === SCHEME ? uri.path.split("/")[1] : undefined;
}

export class Proposals implements vscode.FileSystemProvider {
  private readonly entries = new Map<string, Entry>();
  private readonly changes = new vscode.EventEmitter<vscode.FileChangeEvent[]>();
  readonly onDidChangeFile = this.changes.event;

  /** Take the texts of an approval; what a person has edited already stays. */
  put(document: DiffDocument): void {
    for (const file of document.files) {
      this.set(proposalUri(document.id, "before", file.path), file.before ?? "", undefined, file.path);
      const after = proposalUri(document.id, "after", file.path);
      if (!this.entries.has(after.path)) {
        const editable = file.after !== null && file.kind !== "deleted";
        this.set(after, file.after ?? "", editable ? (file.after ?? undefined) : undefined, file.path);
      }
    }
  }

  putText(id: string, text: string): vscode.Uri {
    const uri = proposalUri(id, "text", `${id}.diff`);
    this.set(uri, text, undefined, "");
    return uri;
  }

  /** The files whose proposed text a person has changed, with the text that they want, saved or not. */
  edited(id: string): { path: string; content: string }[] {
    const found: { path: string; content: string }[] = [];
    for (const [path, entry] of this.entries) {
      if (entry.proposed === undefined || !path.startsWith(`/${id}/`)) {
        continue;
      }
      const open = vscode.workspace.textDocuments.find((one) => one.uri.scheme === SCHEME && one.uri.path === path);
      const content = open?.getText().replaceAll("\r\n", "\n") ?? new TextDecoder().decode(entry.content);
      if (content !== entry.proposed) {
        found.push({ path: entry.path, content });
      }
    }
    return found;
  }

  /** The approval has ended: close what shows it, and forget its texts. */
  async forget(id: string): Promise<void> {
    const tabs = vscode.window.tabGroups.all
      .flatMap((group) => group.tabs)
      .filter((tab) => urisOf(tab).some((uri) => approvalOf(uri) === id));
    for (const document of vscode.workspace.textDocuments) {
      // A tab whose text was edited would ask whether to save what is decided already.
      if (approvalOf(document.uri) === id && document.isDirty) {
        await document.save();
      }
    }
    if (tabs.length > 0) {
      await vscode.window.tabGroups.close(tabs, true);
    }
    for (const path of [...this.entries.keys()].filter((name) => name.startsWith(`/${id}/`))) {
      this.entries.delete(path);
    }
  }

  private set(uri: vscode.Uri, text: string, proposed: string | undefined, path: string): void {
    const known = this.entries.get(uri.path);
    const content = new TextEncoder().encode(text);
    this.entries.set(uri.path, { content, proposed, path, modified: Date.now() });
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
      ...(entry.proposed === undefined ? { permissions: vscode.FilePermission.Readonly } : {}),
    };
  }

  readFile(uri: vscode.Uri): Uint8Array {
    return this.find(uri).content;
  }

  writeFile(uri: vscode.Uri, content: Uint8Array): void {
    const entry = this.find(uri);
    if (entry.proposed === undefined) {
      throw vscode.FileSystemError.NoPermissions(uri);
    }
    entry.content = content;
    entry.modified = Date.now();
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
