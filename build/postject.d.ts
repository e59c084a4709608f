declare module 'postject' {
  /** Writes a resource into an executable of ELF, Mach-O or PE (https://github.com/nodejs/postject). */
  export function inject(
    executable: string,
    resource: string,
    content: Buffer,
    options: { readonly sentinelFuse: string; readonly machoSegmentName: string },
  ): Promise<void>;
}
